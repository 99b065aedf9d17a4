"""Programs that reach MPI past the preloaded library: the world is right, or the job ends with one line."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import jobs
import pytest

from mpicoloc.pmpi import build_shim, elf, paths
from mpicoloc.profile import hdf5

MPICOLOC = [sys.executable, "-m", "mpicoloc"]
PROGRAMS = Path(__file__).resolve().parent / "programs"
WORLD = ["rank 0 of 2, sum 2", "rank 1 of 2, sum 2"]


@pytest.fixture(params=["openmpi", "mpich"])
def mpi(request, tmp_path):
    """The programs `world`, which links MPI, `libworld.so`, and `opener`, which opens either."""
    found = jobs.need_mpi(request.param, tmp_path, "world.c")
    mpicc, _ = jobs.commands(request.param)
    compile_(mpicc, "world.c", tmp_path / "libworld.so", "-shared", "-fPIC", "-DIS_LIBRARY")
    compile_("cc", "opener.c", tmp_path / "opener", "-ldl")
    return found


def compile_(cc, source, out, *flags):
    subprocess.run([cc, PROGRAMS / source, "-o", out, *flags], check=True, timeout=jobs.LIMIT_S)


def call(folder, *command, **env):
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=jobs.LIMIT_S,
        stdin=subprocess.DEVNULL,
    )


def run(mpi, folder, *command, flags=("-n", "2"), **env):
    words = [*MPICOLOC, "run", "--mpirun", mpi.mpirun, "--out", "job.h5", *flags, "--", *command]
    done = call(folder, *words, **env)
    return done, sorted(done.stdout.splitlines())


def assert_ended(done, reason):
    line = next(line for line in done.stderr.splitlines() if line.startswith("mpicoloc: "))
    assert done.returncode != 0 and reason in line and "the job is ended" in line


@pytest.mark.parametrize("how", ["handle", "lazy", "deep"])
def test_a_library_that_is_opened_has_the_world_of_the_ranks(mpi, tmp_path, shm_dir, how):
    opened = jobs.library(jobs.commands(mpi.name)[0]) if how == "handle" else "./libworld.so"
    done, lines = run(mpi, tmp_path, "sh", "-c", f"./opener {how} {opened}")
    assert (done.returncode, lines) == (0, WORLD), done.stderr
    sites = hdf5.read(tmp_path / "job.h5").tables["call_sites"]
    assert set(sites["rank"].tolist()) == {0, 1}, "their calls are recorded"
    jobs.assert_nothing_left(shm_dir)


LOOKS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    const char *const names[] = {"MPI_Send", "MPI_Send_c", "MPI_Session_init", "MPI_Address", "MPI_Nothing"};
    MPI_Init(&argc, &argv);
    for (int i = 0; i < 5; i++)
        printf("%s %d\\n", names[i], dlsym(RTLD_DEFAULT, names[i]) != NULL);
    return MPI_Finalize();
}
"""


def test_a_program_finds_the_functions_that_its_mpi_has(mpi, tmp_path):
    (tmp_path / "looks.c").write_text(LOOKS)
    mpicc, _ = jobs.commands(mpi.name)
    subprocess.run([mpicc, "looks.c", "-o", "looks", "-ldl"], cwd=tmp_path, check=True, timeout=jobs.LIMIT_S)
    done, lines = run(mpi, tmp_path, "./looks", flags=("-n", "1"))
    assert (done.returncode, lines) == (0, sorted(call(tmp_path, "./looks").stdout.splitlines()))


def test_a_second_mpi_ends_the_job_with_one_line(mpi, tmp_path, shm_dir):
    if (
        call(tmp_path, mpi.mpirun, *mpi.flags, "-n", "2", "./opener", "space", "./libworld.so").returncode
        != 0
    ):
        pytest.skip("this MPI cannot be opened by dlmopen, with and without mpicoloc")
    done, _ = run(mpi, tmp_path, "sh", "-c", "./opener space ./libworld.so")
    assert_ended(done, "dlmopen")
    jobs.assert_nothing_left(shm_dir)


@pytest.mark.parametrize("way", ["env -u LD_PRELOAD", "env LD_PRELOAD={libm}"], ids=["removed", "set anew"])
def test_ranks_without_the_library_end_the_job_with_one_line(mpi, tmp_path, shm_dir, way):
    way = way.format(libm="libm.so.6")
    done, _ = run(mpi, tmp_path, "sh", "-c", f"exec {way} ./world")
    assert_ended(done, "world (process ")
    assert not (tmp_path / "job.h5").exists()
    jobs.assert_nothing_left(shm_dir)


def test_openshmem_ends_the_job_with_one_line(tmp_path):
    """Its start is no call of MPI, so the ranks would see the coordinator as one of theirs."""
    mpi = jobs.need_mpi("openmpi", tmp_path, "world.c")
    if shutil.which("oshcc") is None:
        pytest.skip("no OpenSHMEM here")
    compile_("oshcc", "shmem.c", tmp_path / "shmem")
    done, _ = run(mpi, tmp_path, "./shmem")
    assert_ended(done, "uses OpenSHMEM")


def test_a_script_may_take_its_time_before_mpi(mpi, tmp_path):
    done, lines = run(mpi, tmp_path, "sh", "-c", "sleep 5; exec ./world")
    assert (done.returncode, lines) == (0, WORLD), done.stderr


def test_two_programs_in_one_job(mpi, tmp_path):
    if call(tmp_path, mpi.mpirun, "-n", "1", "true", ":", "-n", "1", "true").returncode != 0:
        pytest.skip("this mpirun cannot start two programs")
    shutil.copy(tmp_path / "world", tmp_path / "other")
    done, lines = run(mpi, tmp_path, "./world", ":", "-n", "1", "./other")
    assert (done.returncode, lines) == (0, [f"rank {rank} of 3, sum 3" for rank in range(3)]), done.stderr
    assert hdf5.read(tmp_path / "job.h5").job.n_ranks == 3


@pytest.mark.parametrize(
    ("flags", "command"),
    [
        (["-n", "2"], ["./world", ":", "./world"]),
        (["-n", "2", "--nodes", "2"], ["./world", ":", "-n", "1", "./world"]),
        (["-n", "2", "--mpirun-arg=--app", "--mpirun-arg=file"], ["./world"]),
    ],
)
def test_what_mpicoloc_cannot_start_is_refused_with_what_works(mpi, tmp_path, flags, command):
    done, _ = run(mpi, tmp_path, *command, flags=flags)
    assert done.returncode == 2 and "mpirun" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [["--bind-to", "none"], ["--bind-to", "core"], ["--map-by", "slot"]])
def test_the_coordinator_has_room_however_ranks_are_bound(tmp_path, words):
    mpi = jobs.need_mpi("openmpi", tmp_path, "world.c")
    n = len(os.sched_getaffinity(0))
    done, lines = run(mpi, tmp_path, "./world", flags=["-n", str(n), *(f"--mpirun-arg={w}" for w in words)])
    assert (done.returncode, len(lines)) == (0, n), done.stderr


def test_a_program_of_the_address_sanitizer(mpi, tmp_path):
    compile_(jobs.commands(mpi.name)[0], "world.c", tmp_path / "checked", "-fsanitize=address")
    bare = call(tmp_path, mpi.mpirun, *mpi.flags, "-n", "2", "./checked", ASAN_OPTIONS="detect_leaks=0")
    if bare.returncode:
        pytest.skip(
            f"the sanitizer and this MPI library do not agree, with and without mpicoloc: {bare.stderr}"
        )
    done, lines = run(mpi, tmp_path, "./checked", ASAN_OPTIONS="detect_leaks=0")
    assert (done.returncode, lines) == (0, WORLD), done.stderr
    assert hdf5.read(tmp_path / "job.h5").job.n_ranks == 2


def test_a_library_below_a_folder_with_a_blank_and_a_colon(mpi, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my: cache"))
    shutil.copytree(paths.lib_dir(), paths.cache_dir())
    done, lines = run(mpi, tmp_path, "./world")
    assert (done.returncode, lines) == (0, WORLD), done.stderr
    assert hdf5.read(tmp_path / "job.h5").job.n_ranks == 2


@pytest.mark.parametrize("way", ["run", "wrap"])
@pytest.mark.parametrize("command", ["./start.sh", "sh start.sh", "sh -c '{mpirun} -n 2 ./world'"])
def test_a_script_that_starts_its_ranks_is_named_with_what_works(mpi, tmp_path, way, command):
    script = tmp_path / "start.sh"
    script.write_text(f"#!/bin/sh\nOMP_NUM_THREADS=1 exec {mpi.mpirun} {' '.join(mpi.flags)} -n 2 ./world\n")
    script.chmod(0o755)
    words = shlex.split(command.format(mpirun=mpi.mpirun))
    wrap = [mpi.mpirun, *mpi.flags, "-n", "3", sys.executable, "-m", "mpicoloc.wrap"]
    done = call(tmp_path, *wrap, *words) if way == "wrap" else run(mpi, tmp_path, *words)[0]
    assert done.returncode == 2 and done.stderr.count("LD_PRELOAD=$(mpicoloc preload APP)") == 1
    assert not done.stdout


def test_a_script_that_starts_its_ranks_is_measured_by_preloading(mpi, tmp_path):
    library = call(tmp_path, *MPICOLOC, "preload", "./world").stdout.strip()
    start = shlex.join([mpi.mpirun, *mpi.flags, "-n", "2", "./world"])
    done = call(tmp_path, "sh", "-c", start, LD_PRELOAD=library, MPICOLOC_OUT="job.h5")
    assert sorted(done.stdout.splitlines()) == WORLD, done.stderr
    jobs.wait_until((tmp_path / "job.h5").exists, "the profile")


def test_a_forked_child_that_ends_mpi_waits_for_nothing(tmp_path):
    """MPICH aborts the job also without mpicoloc; Open MPI 5 hangs in such a child by itself."""
    mpi = jobs.need_mpi("mpich", tmp_path, "forked.c")
    done, _ = run(mpi, tmp_path, "./forked")
    assert_ended(done, "forked child")


@pytest.mark.parametrize("soname", ["libmpi_gnu_123.so.12", "libmpi_ibm.so.3"])
@pytest.mark.parametrize("way", ["run", "wrap", "preload"])
def test_a_vendors_name_of_the_library_is_known(tmp_path, shm_dir, soname, way):
    """A program that links a vendor's library: the family is told by what the library holds."""
    mpi = jobs.need_mpi("mpich" if "gnu" in soname else "openmpi", tmp_path, "world.c")
    mpicc, _ = jobs.commands(mpi.name)
    library = jobs.library(mpicc)
    shutil.copy(library, tmp_path / soname)
    names = "MPI_Init MPI_Finalize MPI_Comm_rank MPI_Comm_size MPI_Allreduce"
    names += " ompi_mpi_comm_world ompi_mpi_int ompi_mpi_op_sum"
    stub = "".join(f"void {name}(void) {{}}" for name in names.split())
    subprocess.run(["cc", "-shared", "-xc", "-", "-o", tmp_path / "stub.so", f"-Wl,-soname,{soname}"],
                   input=stub, text=True, check=True, timeout=jobs.LIMIT_S)  # fmt: skip
    flags = [f"-I{folder}" for folder in build_shim.include_dirs_of(mpicc)]
    compile_(
        "cc",
        "world.c",
        tmp_path / "vendors",
        "-fPIC",
        *flags,
        tmp_path / "stub.so",
        "-Wl,--allow-shlib-undefined",
    )
    facts = elf.read(library)  # a copy does not find what lies beside it
    folders = [str(tmp_path), *facts.runpath, *facts.rpath]
    env = {"LD_LIBRARY_PATH": ":".join(folders), "MPICOLOC_OUT": "job.h5"}
    if way == "run":
        done, lines = run(mpi, tmp_path, "./vendors", **env)
    else:
        shim = call(tmp_path, *MPICOLOC, "preload", "./vendors", **env).stdout.strip()
        wrap = [sys.executable, "-m", "mpicoloc.wrap"] if way == "wrap" else ["env", f"LD_PRELOAD={shim}"]
        command = [mpi.mpirun, *mpi.flags, "-n", "3" if way == "wrap" else "2", *wrap, "./vendors"]
        done = call(tmp_path, *command, **env)
        lines = sorted(done.stdout.splitlines())
    assert (done.returncode, lines) == (0, WORLD), done.stderr
    jobs.wait_until((tmp_path / "job.h5").exists, "the profile")
    assert set(hdf5.read(tmp_path / "job.h5").tables["call_sites"]["rank"].tolist()) == {0, 1}


def test_an_exported_library_of_another_mpi_is_replaced(mpi, tmp_path, shm_dir):
    other = paths.find_shim("mpich" if mpi.name == "openmpi" else "openmpi")
    done, lines = run(mpi, tmp_path, "./world", LD_PRELOAD=other)
    assert (done.returncode, lines) == (0, WORLD), done.stderr
    assert set(hdf5.read(tmp_path / "job.h5").tables["call_sites"]["rank"].tolist()) == {0, 1}
