"""The programs of the suite under the sanitizers; they take minutes, so only where MPI_CONFORMANCE=all."""

import conf_lab
import conf_runs
import pytest
import sanlab
import shimlab

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(not conf_lab.ALL, reason="MPI_CONFORMANCE=all runs it"),
    pytest.mark.skipif(sanlab.runtimes("address") is None, reason="the compiler has no sanitizer"),
]


@pytest.mark.parametrize("language", ["c", "use_mpi_f08"])
@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_no_case_is_a_bad_access(make_mpi, monkeypatch, shm_dir, tmp_path, mpi, language):
    monkeypatch.setattr(shimlab, "TIME_LIMIT_S", 240)
    family = make_mpi(mpi)
    shim = sanlab.build(family, "address", tmp_path)
    program, cases = conf_lab.program(family, language)
    for i, part in enumerate(conf_lab.parts(cases, mpi, language, 2)):
        marks = tmp_path / f"part{i}"
        marks.mkdir()
        setting = conf_runs.environment(part, marks) | sanlab.environment("address", shim, marks / "log")
        done = shimlab.launch(family, 2, program, **setting)
        assert done.code == 0, done.stderr
        assert sanlab.reports(marks / "log") == []
