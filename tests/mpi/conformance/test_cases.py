"""What the shim records of every function, with known counts, bytes and peers, in each language and world."""

import conf_lab
import conf_runs
import conf_spec
import pytest
import shimlab

LIMIT_S = 240
pytestmark = pytest.mark.timeout(2 * LIMIT_S)

SIZES = {"c": (1, 2, 3, 4), "mpif_h": (2,), "use_mpi": (1,), "use_mpi_f08": (2, 3)}
# Four ranks of MPICH, which wait without a pause, take long on few processors; those of Open MPI do not.
SIZES_OF = {"openmpi5": (2, 3), "abi": (2, 3), "own": (2, 3)}
TOO_LONG = {("mpich", "c", 4)}
RUNS = [
    (mpi, language, size)
    for mpi in ("openmpi", "mpich", "abi", "own", "openmpi5")
    for language in conf_spec.LANGUAGES
    for size in (1, 2, 3, 4)
    if (
        conf_lab.ALL or (size in SIZES_OF.get(mpi, SIZES[language]) and (mpi, language, size) not in TOO_LONG)
    )
    and (language == "c" or mpi in ("openmpi", "mpich"))
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
            env = {
                "CONF_CASES": ",".join(case.name for case in part),
                "CONF_MARKS": str(marks),
                "CONF_FILE": str(marks / "file"),
            }
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
