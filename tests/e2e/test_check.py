"""`mpicoloc check` where the kernel filters system calls, as in containers."""

import json
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
