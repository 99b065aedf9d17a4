"""A short part of the suites of MPICH and of mpi4py: with the shim all comes out as without it."""

import os

import jobs
import once
import processes
import pytest
import suite_fetch
import suite_jobs
import suite_mpich
import suite_shims
import suite_short
import suites
from suite_jobs import Outcome

GOOD, BAD = Outcome("exit 0", True, (" No Errors",)), Outcome("exit 1", False, ("Found 1 errors",))
slow = pytest.mark.timeout(900)


@pytest.fixture
def rows_of(request, tmp_path_factory):
    """Rows of a run; where there is no network the test is skipped, but not in CI."""

    def run(suite, mpi, *words):
        cache = request.config.cache.mkdir("mpicoloc-suites")
        name = "own" if mpi == "wheel" else mpi
        family = suite_shims.shimlab.shared_family(name, once.folder(tmp_path_factory) / "families")
        if family is None:
            pytest.skip(f"this MPI is not installed: {mpi}")
        words = [suite, "--mpi", mpi, "--part", "short", "--cache", str(cache), "--limit", "120", *words]
        try:
            with once.alone(cache / f"{suite}-{mpi}"):  # its programs are built and run in one folder
                return suites.run(words, family)
        except suite_fetch.Unreachable as error:
            if os.environ.get("CI"):
                raise
            return pytest.skip(f"the suite cannot be fetched here: {error}")

    return run


def check(rows):
    """Nothing differs, most tests mean something here, and the shim was in all of them."""
    tests = [made for row in rows for made in row.comparisons]
    assert [made.as_dict() for made in tests if made.kind in ("differs", "once")] == []
    assert sum(made.bare[0].passed for made in tests) > 0.8 * len(tests)
    assert sum(row.n_seen for row in rows) == len(tests)


@slow
@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_mpich_suite(rows_of, mpi):
    rows = rows_of("mpich", mpi)
    assert {row.part for row in rows} == set(suite_short.SHORT)
    # Open MPI 4 has no partitioned communication
    assert {row.part for row in rows if not row.comparisons} <= {"part"}
    check(rows)


@slow
@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_mpich_suite_with_coordinators(rows_of, mpi):
    folders = "attr,comm,errhan,group,rma,f90/comm"
    check(rows_of("mpich", mpi, "--mode", "swap", "--dirs", folders))


@slow
def test_mpi4py_suite(rows_of):
    pytest.importorskip("mpi4py")
    check(rows_of("mpi4py", "wheel", "--ranks", "2"))


@pytest.mark.parametrize(
    ("bare", "shim", "kind", "n_runs"),
    [
        ([GOOD], [GOOD], "identical", 1),
        ([BAD], [BAD], "identical", 1),
        ([GOOD] * 6, [BAD] * 6, "differs", 6),
        ([GOOD] * 6, [BAD, GOOD, GOOD, BAD, GOOD, GOOD], "differs", 6),
        ([GOOD] * 6, [BAD, GOOD, GOOD, GOOD, GOOD, GOOD], "once", 6),
        ([GOOD, BAD, GOOD], [BAD, GOOD, BAD], "noisy", 3),
        ([BAD, Outcome("exit 2", False), BAD], [Outcome("exit 3", False)] * 3, "noisy", 3),
        ([GOOD] * 6, [Outcome("exit 0", True, ("other",))] * 6, "differs", 6),
    ],
)
def test_what_counts_as_a_difference(bare, shim, kind, n_runs):
    made = suite_jobs.compare("a test", iter(bare).__next__, iter(shim).__next__)
    assert made.kind == kind
    assert len(made.bare) == len(made.shim) == n_runs


def test_test_lists():
    text = """
    # comment
    sendrecv1 2 arg=-seed=200 arg=-n timeLimit=600 # more
    scancel 2 xfail=ticket1
    only_mpich 2 mpix=TRUE
    flood 8 env=MPIR_CVAR_X=1,2
    fatal 1 resultTest=TestErrFatal
    """
    tests = suite_mpich.parse_list(text, "pt2pt")
    assert [test.name for test in tests] == [
        "pt2pt/sendrecv1 2 -seed=200 -n",
        "pt2pt/flood 8 MPIR_CVAR_X=1,2",
        "pt2pt/fatal 1",
    ]
    assert [test.is_in("core") for test in tests] == [False, False, True]
    assert all(test.is_in("all") for test in tests)


def test_verdicts_are_those_of_the_suite():
    assert suite_mpich.has_passed("exit 0", " No Errors\n", "")
    assert not suite_mpich.has_passed("exit 0", "Found 2 errors\n No Errors\n", "")
    assert not suite_mpich.has_passed("exit 1", " No Errors\n", "")
    assert suite_mpich.has_passed("exit 1", "aborted\n", "TestErrFatal")
    assert not suite_mpich.has_passed("timeout", "aborted\n", "TestErrFatal")


def test_a_job_beyond_its_limit_is_ended_with_all_its_processes(tmp_path):
    script = "sh -c 'trap \"\" TERM; echo $$ >pid; sleep 300; sleep 300' & wait"
    status, _ = suite_jobs.execute(["sh", "-c", script], tmp_path, limit_s=1)
    assert status == "timeout"
    pid = (tmp_path / "pid").read_text().strip()
    jobs.wait_until(lambda: not processes.is_running(pid), "its end")


def test_what_varies_from_run_to_run_is_no_difference():
    one = suite_jobs.normal_lines("rank 1: pid 12345 at 0x7f00aa, 1.25 s\n[0] done\n")
    other = suite_jobs.normal_lines("[0] done\nrank 1: pid 6789 at 0x7fbb, 3.5 s\n")
    assert one == other
    crash = "[vm:77] [ 0] /lib/libc.so.6(+0x3c050)[0x7f]\n#5  0x7fa857575b8c in ???\n\tat ./signal/x.c:0\n"
    assert suite_jobs.normal_lines(crash + "killed") == suite_jobs.normal_lines("killed")
    assert suite_jobs.normal_lines("got 3") != suite_jobs.normal_lines("got 4")
