"""`mpicoloc check` where the kernel filters system calls, as in containers."""

import json
import os
import subprocess
import sys

import jobs
import pytest

CHECK = [sys.executable, "-m", "mpicoloc", "check", "--json"]


def findings(*before):
    done = subprocess.run([*before, *CHECK], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (0, 1), done.stderr
    return {found["name"]: found for found in json.loads(done.stdout)["findings"]}


@pytest.mark.e2e
@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("SECCOMP_RET_KILL_PROCESS", "(seccomp) died"),
        ("SECCOMP_RET_KILL_THREAD", "(seccomp) died"),
        ("SECCOMP_RET_TRAP", "(seccomp) died"),
        ("SECCOMP_RET_ERRNO+EPERM", "perf_event_open refused"),
    ],
)
def test_a_filter_that_kills_is_told_and_all_else_too(answer, words, tmp_path):
    forbid = str(tmp_path / "no_perf")
    source = str(jobs.PROGRAMS / "no_perf.c")
    subprocess.run(["cc", f"-DANSWER=({answer})", source, "-o", forbid], check=True, timeout=60)
    free, filtered = findings(), findings(forbid)
    assert list(filtered) == list(free)
    assert filtered["PMU"]["state"] == "note"
    assert words in filtered["PMU"]["text"]
    assert "died" not in free["PMU"]["text"]
    assert filtered["pidfd"] == free["pidfd"]


@pytest.mark.e2e
@pytest.mark.skipif(os.geteuid() != 0, reason="Open MPI refuses root only")
@pytest.mark.parametrize(
    "names", [(), ("OMPI_ALLOW_RUN_AS_ROOT",), ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")]
)
def test_an_open_mpi_that_refuses_root_is_no_mpi(names, monkeypatch):
    for name in [name for name in os.environ if "ALLOW_RUN_AS_ROOT" in name]:
        monkeypatch.delenv(name)
    for name in names:
        monkeypatch.setenv(name, "1")
    done = subprocess.run(CHECK, capture_output=True, text=True, timeout=60, check=False)
    found = [one for one in json.loads(done.stdout)["findings"] if "Open MPI" in one["text"]]
    if not found:
        pytest.skip("no Open MPI here")
    refuses = subprocess.run(
        [found[0]["text"].split(", ")[1], "-n", "1", "true"], timeout=60, check=False
    ).returncode
    assert bool(refuses) == ("refuses to run as root" in found[0]["text"])
    assert bool(refuses) == ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1" in found[0]["remedy"])
