"""Calls, bytes and peers recorded for every function, against known ones, in each language and world size."""

import conf_lab
import conf_runs
import pytest
import shimlab

LIMIT_S = 240
pytestmark = pytest.mark.timeout(2 * LIMIT_S)

EVERY = (1, 2, 3, 4)
SIZES = {
    "openmpi": {"c": (1, 2, 3, 4), "mpif_h": (2,), "use_mpi": (1,), "use_mpi_f08": (2, 3)},
    # Ranks of MPICH, which wait without a pause, take long where they share processors. Its Fortran calls C.
    "mpich": {"c": (1, 3), "mpif_h": (2,), "use_mpi": (1,), "use_mpi_f08": (2,)},
    # The families' code with other headers and functions.
    "abi": {"c": (2,)},
    "own": {"c": (3,)},
    "openmpi5": {"c": (3,)},
}
"""Sizes of the world that are run, by MPI and language; every size where MPI_CONFORMANCE=all."""
RUNS = [
    (mpi, language, size)
    for mpi, of_language in SIZES.items()
    for language, sizes in of_language.items()
    for size in (EVERY if conf_lab.ALL else sizes)
]


@pytest.fixture
def mistakes(make_mpi, shm_dir, tmp_path):
    """Run all cases of an MPI and a language; returns what was recorded wrongly."""

    def run(mpi, language, size):
        family = make_mpi(mpi)
        program, cases = conf_lab.program(family, language)
        name, wrong = conf_lab.library(family).mpi, []
        for i, part in enumerate(conf_lab.parts(cases, name, language, size)):
            marks = tmp_path / f"part{i}"
            marks.mkdir()
            env = conf_runs.environment(part, marks)
            done = shimlab.launch(family, size, program, preload=family.shim, **env)
            last = [conf_runs.last_mark(path) for path in marks.glob("*.marks")]
            assert (done.code, done.stderr) == (0, ""), f"after {last}"
            wrong += conf_lab.check_run(marks, conf_runs.call_names(family.shim), part, size)
        return wrong

    return run


@pytest.mark.parametrize(("mpi", "language", "size"), RUNS)
def test_counts_bytes_and_peers(mistakes, mpi, language, size):
    wrong = conf_lab.unexcused(mistakes(mpi, language, size), f"{mpi}/{language}")
    assert not wrong, "\n".join(wrong)
