"""The shim under the sanitizers and Valgrind: no report in which code of ours is to blame."""

import shutil
import subprocess

import once
import pytest
import sanlab
import shimlab

pytestmark = pytest.mark.slow

LIMIT_S = 900
"""The first of each kind builds a shim."""
PROGRAMS = [
    ("calls.c", None),
    ("points.c", None),
    ("access.c", None, "one_sided"),
    ("access.c", None, "communicators"),
    ("access.c", None, "files", "FILE"),
    ("access.c", None, "both_ways"),
    ("groups.c", None),
    ("neighbours.c", None),
    ("regions.c", None),
    ("sessions.c", None),
    ("calls.F90", "MPIF_H"),
    ("calls.F90", "USE_F08"),
    ("completions.F90", "USE_MPI"),
]
# Ranks of MPICH keep all cores busy while they wait, and threads are no business of a family's own code.
with_threads = pytest.mark.parametrize("family", ["openmpi"], indirect=True)


@pytest.fixture
def sanitized(family):
    """The shim of the family with a sanitizer."""

    def build(kind):
        if sanlab.runtimes(kind) is None:
            pytest.skip(f"the compiler has no {kind} sanitizer")
        return once.value(
            family.folder / f"{kind}.shim", lambda: sanlab.build(family, kind, family.folder / kind)
        )

    return build


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("words", PROGRAMS, ids=lambda words: "-".join(word for word in words if word))
def test_no_bad_access_and_no_leak(family, sanitized, words, tmp_path, shm_dir):
    see_no_bad_access(family, sanitized("address"), words, tmp_path, shm_dir)


@pytest.mark.timeout(LIMIT_S)
@with_threads
def test_threads_have_no_bad_access_and_no_leak(family, sanitized, tmp_path, shm_dir):
    see_no_bad_access(family, sanitized("address"), ("threads.c", None), tmp_path, shm_dir)


def see_no_bad_access(family, shim, words, tmp_path, shm_dir):
    program, *rest = family.compile(words[0], words[1]), *words[2:]
    rest = [str(tmp_path / "file") if word == "FILE" else word for word in rest]
    n_ranks = 4 if words[0] == "groups.c" else 2
    bare = shimlab.launch(family, n_ranks, program, *rest)
    setting = sanlab.environment("address", shim, tmp_path / "log")
    done = shimlab.launch(family, n_ranks, program, *rest, **setting)
    assert sanlab.reports(tmp_path / "log") == []
    assert (done.lines, done.code) == (bare.lines, bare.code), done.stderr
    assert len(shimlab.segments(shm_dir)) == n_ranks


@pytest.mark.timeout(LIMIT_S)
def test_no_bad_access_in_a_world_with_a_coordinator(family, sanitized, tmp_path, shm_dir):
    shim = sanitized("address")
    program = family.compile("seen.c")
    setting = {**shimlab.WRAPPED, **sanlab.environment("address", shim, tmp_path / "log")}
    inner = ["env", *(f"{name}={value}" for name, value in setting.items()), program, tmp_path / "file"]
    coordinator = family.compile("coordinator.c")
    done = shimlab.run([*family.mpirun, "-n", 2, *inner, ":", "-n", 1, coordinator])
    assert sanlab.reports(tmp_path / "log") == []
    assert done.code == shimlab.launch(family, 2, program, tmp_path / "bare").code
    assert len(shimlab.segments(shm_dir)) == 2


@pytest.mark.timeout(LIMIT_S)
@with_threads
def test_no_race_among_threads_that_complete_requests_of_others(family, sanitized, tmp_path, shm_dir):
    shim = sanitized("thread")
    program = family.compile("threads.c")
    setting = [
        f"{name}={value}" for name, value in sanlab.environment("thread", shim, tmp_path / "log").items()
    ]
    # the thread sanitizer of older compilers needs addresses that are not random
    done = shimlab.run([*family.mpirun, "-n", 2, "setarch", "-R", "env", *setting, program])
    assert sanlab.reports(tmp_path / "log") == []
    assert done.lines == shimlab.launch(family, 2, program).lines, done.stderr
    assert len(shimlab.segments(shm_dir)) == 2


@pytest.mark.timeout(LIMIT_S)
def test_valgrind_finds_nothing_of_ours(family, tmp_path, shm_dir):
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        pytest.skip("no valgrind here")
    log = f"--log-file={tmp_path}/valgrind.%p"
    program = family.compile("calls.c")
    command = [valgrind, "-q", "--num-callers=20", "--leak-check=full", log, program]
    done = shimlab.launch(family, 2, *command, preload=family.shim)
    assert sanlab.valgrind_errors(tmp_path) == []
    assert done.code == shimlab.launch(family, 2, program).code, done.stderr
    assert len(list(tmp_path.glob("valgrind.*"))) == 2
    assert len(shimlab.segments(shm_dir)) == 2


FAULTS = r"""
#include <pthread.h>
#include <stdlib.h>
static long shared;
__attribute__((noinline)) static void leak(void) { void *volatile lost = malloc(33); (void)lost; lost = 0; }
static void *race(void *unused) { for (int i = 0; i < 1000; i++) shared++; return unused; }
void fault(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, race, NULL);
    race(NULL);
    pthread_join(thread, NULL);
    for (int i = 0; i < 10; i++) leak();
}
"""


@pytest.mark.parametrize("kind", sanlab.FLAGS)
def test_faults_of_ours_would_be_found(kind, tmp_path):
    if sanlab.runtimes(kind) is None:
        pytest.skip(f"the compiler has no {kind} sanitizer")
    (tmp_path / "fault.c").write_text(FAULTS)
    (tmp_path / "main.c").write_text("void fault(void); int main(void) { fault(); return 0; }")
    library = tmp_path / "libmpicoloc-fault.so"
    flags = ["-g", "-O0", *sanlab.FLAGS[kind]]
    subprocess.run(["cc", "-shared", "-fPIC", *flags, tmp_path / "fault.c", "-o", library], check=True)
    subprocess.run(["cc", tmp_path / "main.c", library, "-o", tmp_path / "main"], check=True)
    setting = [
        f"{name}={value}" for name, value in sanlab.environment(kind, library, tmp_path / "log").items()
    ]
    done = shimlab.run(["setarch", "-R", "env", *setting, tmp_path / "main"])
    assert done.code == 0, done.stderr
    assert sanlab.reports(tmp_path / "log")
