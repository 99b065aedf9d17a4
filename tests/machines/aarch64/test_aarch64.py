"""The C half for aarch64: Debian's cross compiler makes it, qemu-aarch64 runs it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import objects
import once
import pytest

from mpicoloc.pmpi import build_shim
from mpicoloc.profile import hdf5

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
CORE = (*objects.AGENT, *objects.RECORDER)
HOOKS = objects.of_csrc("common/options.c", "common/proc.c", "common/segment.c", "common/table.c",
                        "guest/clock.c", "guest/hooks.c", "guest/lanes.c",
                        "guest/count/patch.c", "guest/rank_segment.c", "guest/regions.c",
                        "guest/usage.c")  # fmt: skip
LIMIT_S = 300

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, (COMPILER, EMULATOR))) and "CI" not in os.environ,
    reason=f"needs {COMPILER} and {EMULATOR}",
)


@pytest.fixture(scope="module")
def compiler():
    """Set CC to the compiler for aarch64 in this folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CC", str(HERE / "cc"))
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory, compiler):
    """Folder for files that several tests use and that are made once."""
    folder = once.folder(tmp_path_factory) / "aarch64"
    folder.mkdir(exist_ok=True)
    return folder


def fetch(folder):
    """The folder of include and lib of the wheel `mpich` for aarch64, or None."""
    words = ["download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(folder), "mpich>=5"]
    words += [f"--platform=manylinux{name}_aarch64" for name in ("_2_28", "2014")]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *words], capture_output=True, timeout=LIMIT_S, check="CI" in os.environ
    )
    if done.returncode != 0:
        return None
    shutil.unpack_archive(next(folder.glob("*.whl")), folder, "zip")
    return next(folder.glob("*.data")) / "data"


def build_library(folder, include):
    """The preloaded library for MPICH, with the keeper beside it, both with all warnings."""
    build_shim.build_keeper(folder, folder / "kept")
    return build_shim.build_shim([COMPILER], [include], "mpich", folder, kept=folder / "kept")


def build_program(out, data):
    words = [HERE / "ring.c", "-o", out, "-O1", f"-I{data / 'include'}", data / "lib/libmpi.so.12"]
    # what that library needs itself is found when it runs
    subprocess.run([HERE / "cc", *words, "-Wl,--allow-shlib-undefined"], check=True, timeout=LIMIT_S)
    return out.with_suffix(".aarch64")


@pytest.fixture(scope="module")
def mpich(made):
    found = once.value(made / "mpich", lambda: fetch(made))
    if found is None:
        pytest.skip("the wheel mpich for aarch64 cannot be fetched")
    return found


@pytest.fixture(scope="module")
def library(made, mpich):
    return once.value(made / "library", lambda: build_library(made / "lib", mpich / "include"))


@pytest.fixture(scope="module")
def program(made, mpich):
    return once.value(made / "program", lambda: build_program(made / "ring", mpich))


def start(mpich, library, program, shm, out, *arguments):
    """Two emulated ranks with the library, on a launcher of this machine."""
    launcher = Path(sys.executable).parent / "mpiexec"
    inner = {"LD_PRELOAD": library, "LD_LIBRARY_PATH": mpich / "lib"}
    words = [launcher, "-n", "2", EMULATOR, "-L", "/usr/aarch64-linux-gnu"]
    words += [word for name, value in inner.items() for word in ("-E", f"{name}={value}")]
    outer = {"MPICOLOC_SHM_DIR": shm, "MPICOLOC_OUT": out, "MPICOLOC_PYTHON": sys.executable}
    return subprocess.Popen(
        [*map(str, words), str(program), *arguments],
        env=os.environ | {name: str(value) for name, value in outer.items()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process):
    said, complaints = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, complaints
    assert complaints == ""
    return sorted(said.splitlines())


def shown(profile):
    """Parsed output of `mpicoloc show --json`."""
    words = [Path(sys.executable).parent / "mpicoloc", "show", "--json", profile]
    return json.loads(subprocess.run(words, capture_output=True, check=True, timeout=LIMIT_S).stdout)


def test_two_ranks_get_right_results_and_a_profile(mpich, library, program, tmp_path):
    n_rounds, out = 100, tmp_path / "ring.h5"
    said = end(start(mpich, library, program, tmp_path, out, str(n_rounds), "0"))
    assert said == ["rank 0 got 1 sum 1", "rank 1 got 0 sum 1"]
    found = shown(out)
    assert not found["partial"]
    # and those that ask for rank and size, and MPI_Finalize
    assert found["mpi"]["n_calls"] == 2 * (2 * n_rounds + 3)
    assert found["mpi"]["sent_bytes"] == found["mpi"]["recv_bytes"] == 2 * 2 * n_rounds * 4
    assert not list(tmp_path.glob("mpicoloc.*"))


def test_two_jobs_stand_still_for_each_other(mpich, library, program, tmp_path):
    outs = [tmp_path / f"{name}.h5" for name in ("one", "other")]
    jobs = [start(mpich, library, program, tmp_path, out, "2000", "20000") for out in outs]
    for job in jobs:
        end(job)
    for out in outs:
        found = shown(out)["interference"]
        assert len(found["co_runners"]) == 1
        assert found["shutters"]["n_taken"] > 0
        assert b"code is changed on x86-64 only" in hdf5.read(out).tables["nodes"]["meter_reason"][0]
    assert not list(tmp_path.glob("mpicoloc.*"))


def run(program, shm, *arguments):
    environment = {name: text for name, text in os.environ.items() if not name.startswith("MPICOLOC_")}
    done = subprocess.run(
        [program, *arguments],
        env=environment | {"MPICOLOC_SHM_DIR": str(shm)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "sources", "scenarios"),
    [
        ("test_board", CORE, ("garbage", "shortened", "replaced", "other_versions")),
        ("test_usage", objects.of_csrc("guest/usage.c"), ("",)),
        ("test_requests", objects.of_csrc("guest/calls/requests.c"), ("",)),
        ("test_hooks", HOOKS, ("",)),
        ("test_gate", CORE, ("cancel gate", "suspend gate", "woken gate")),
    ],
)
def test_programs_that_need_no_mpi(made, tmp_path, name, sources, scenarios):
    # The clock of test_hooks is its own.
    extra = (
        {path.name: ("-DMC_NO_TSC",) for path in (*sources, Path("test_hooks.c"))} if sources is HOOKS else {}
    )
    files = [objects.of_tests(name), *sources]
    flags = (*objects.FLAGS, f"-DMC_TEST_LIMIT_S={LIMIT_S // 2}")
    built = objects.program(tmp_path / name, files, flags, made / "objects", extra)
    shm = tmp_path / "shm"
    shm.mkdir()
    for scenario in scenarios:
        run(built, shm, *scenario.split())


def test_what_slurm_loads_compiles(tmp_path):
    slurm = Path("/usr/include/slurm")
    if not slurm.exists():
        pytest.skip("no headers of Slurm here")
    # of all headers of this machine these alone are the same for the other processor
    (tmp_path / "slurm").symlink_to(slurm)
    flags = [*objects.FLAGS, "-O2", "-fPIC", f"-I{tmp_path}", f"-I{objects.CSRC}"]
    for source in sorted((objects.CSRC / "spank").glob("*.c")):
        command = [COMPILER, *flags, "-c", source, "-o", tmp_path / f"{source.stem}.o"]
        subprocess.run(list(map(str, command)), check=True, timeout=LIMIT_S)
