"""An arm64 machine with hardware counters that QEMU emulates: Debian's kernel, BusyBox, what a test adds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CROSS_LIBRARIES = Path("/usr/aarch64-linux-gnu/lib")
LIMIT_S = 240
NS_PER_INSTRUCTION = 2
"""By `-icount shift=1`. Cycles are of 1 GHz, so two are counted for each instruction."""
_ICOUNT = f"shift={NS_PER_INSTRUCTION.bit_length() - 1},sleep=off"
_LIBRARIES = ("ld-linux-aarch64", "libc", "libm", "libdl", "libpthread", "librt", "libgcc_s")
_DISK_BYTES = 1 << 30
_APT = """\
APT::Architecture "arm64";
APT::Architectures {{ "arm64"; }};
Dir::State::Lists "{0}/lists";
Dir::State::status "{0}/status";
Dir::Cache "{0}/cache";
Dir::Etc::sourcelist "{0}/sources.list";
Dir::Etc::sourceparts "/dev/null";
"""


def _call(*words: str | Path, **options) -> str:
    done = subprocess.run(
        list(map(str, words)), check=True, capture_output=True, text=True, timeout=LIMIT_S, **options
    )
    return done.stdout


def cache() -> Path:
    """Where downloads stay."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "mpicoloc-tests" / "pmu"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _apt(folder: Path) -> dict[str, str]:
    """An environment in which apt knows Debian's packages for arm64 only, and writes into `folder` only."""
    suite = re.search(r"VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text())
    mirror = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
    key = "/usr/share/keyrings/debian-archive-keyring.gpg"
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    (folder / "sources.list").write_text(
        f"deb [signed-by={key}] {mirror} {suite[1] if suite else 'bookworm'} main\n"
    )
    (folder / "apt.conf").write_text(_APT.format(folder))
    return os.environ | {"APT_CONFIG": str(folder / "apt.conf")}


def debian() -> Path:
    """A folder with the contents of Debian's kernel and BusyBox for arm64."""
    made = cache() / "debian"
    if made.exists():
        return made
    apt, part = cache() / "apt", cache() / "debian.part"
    shutil.rmtree(part, ignore_errors=True)
    environment = _apt(apt)
    _call("apt-get", "update", env=environment)
    found = _call("apt-cache", "depends", "linux-image-arm64", env=environment)
    kernel = re.findall(r"Depends: (linux-image-\S+)", found)[0]
    _call("apt-get", "download", kernel, "busybox-static", env=environment, cwd=apt)
    for package in apt.glob("*.deb"):
        _call("dpkg-deb", "-x", package, part)
        package.unlink()
    part.rename(made)
    return made


def mpich() -> Path:
    """The folder of bin, include and lib of the wheel `mpich` for arm64."""
    made = cache() / "mpich"
    if not made.exists():
        part = cache() / "mpich.part"
        words = ["--quiet", "--no-deps", "--only-binary=:all:", "--dest", part, "mpich>=5"]
        words += [f"--platform=manylinux{name}_aarch64" for name in ("_2_28", "2014")]
        _call(sys.executable, "-m", "pip", "download", *words)
        shutil.unpack_archive(next(part.glob("*.whl")), part, "zip")
        part.rename(made)
    return next(made.glob("*.data")) / "data"


def lay_out(root: Path) -> None:
    """Write a machine's file system: first process, BusyBox, modules for the disk, C library, MPI, a user."""
    packages = debian()
    for name in ("bin", "dev", "proc", "sys", "etc", "lib", "modules"):
        (root / name).mkdir(parents=True)
    shutil.copy(HERE / "init", root / "init")
    shutil.copy(packages / "bin/busybox", root / "bin")
    for name in ("virtio_mmio.ko", "virtio_blk.ko"):
        shutil.copy(next(packages.rglob(name)), root / "modules")
    for name in _LIBRARIES:
        shutil.copy(next(CROSS_LIBRARIES.glob(f"{name}.so.*")), root / "lib")
    shutil.copytree(mpich(), root / "mpich", ignore=shutil.ignore_patterns("include"))
    for program in (root / "mpich/bin").iterdir():  # an unpacked archive forgets what may be executed
        program.chmod(0o755)
    (root / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/tmp:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\nuser:x:1000:\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost pmu\n")


def boot(root: Path, steps: str, folder: Path, n_processors: int = 1) -> str:
    """Run shell commands in the machine of these files (see `lay_out`); what they print is returned.

    What they write into /out comes back in `folder`. QEMU runs several processors in turns, and then some
    count a few per cent too much.
    """
    folder.mkdir(parents=True)
    (root / "steps").write_text(steps)
    image, disk = folder / "image", folder / "disk"
    files = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    with open(image, "wb") as out:
        subprocess.run(["cpio", "-o", "-H", "newc", "-R", "0:0", "--quiet"], input=files.encode(), stdout=out,
                       cwd=root, check=True, timeout=LIMIT_S)  # fmt: skip
    with open(disk, "wb") as out:
        out.truncate(_DISK_BYTES)
    printed = _call(
        "qemu-system-aarch64", "-machine", "virt", "-cpu", "max", "-icount", _ICOUNT, "-m", "2048",
        "-smp", str(n_processors), "-display", "none", "-nodefaults", "-no-reboot", "-serial", "stdio",
        "-kernel", next((debian() / "boot").glob("vmlinuz-*")), "-initrd", image,
        "-append", "console=ttyAMA0 quiet panic=-1",
        "-drive", f"file={disk},format=raw,if=none,id=out", "-device", "virtio-blk-device,drive=out",
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    image.unlink()
    _call("tar", "-x", "-f", disk, "-C", folder, "--no-same-owner")
    disk.unlink()
    return printed
