"""Profiles are written at the end, by a child that has loaded what that takes or by the coordinator."""

import os
import signal
import subprocess
import sys
import time

import pytest

from mpicoloc.job import coordinator
from mpicoloc.job.coordinator import COMMAND_NAME, WarmWriter

LIMIT_S = 30


def where(*words):
    return os.getpid(), *words


def fail_in_a_child():
    if os.getpid() != OWN_PID:
        raise ValueError("in the child only")
    return OWN_PID


def fail():
    raise ValueError("everywhere")


OWN_PID = os.getpid()
WORK = (where, fail_in_a_child, fail)


@pytest.fixture
def writer(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "OWN_PID", os.getpid())
    made = WarmWriter(WORK, lambda: None)
    yield made
    made.close()


def is_there(pid):
    try:
        os.waitpid(pid, os.WNOHANG)
        os.kill(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        return False
    return True


def await_end(pid):
    deadline_s = time.monotonic() + LIMIT_S
    while is_there(pid):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_the_child_does_the_work(writer):
    content = bytes(3_000_000)
    pid, *words = writer.call(where, content, [b"", "x"], 1)
    assert pid != os.getpid()
    assert words == [content, [b"", "x"], 1]
    assert writer.call(where)[0] == pid
    with open(f"/proc/{pid}/comm") as file:
        assert file.read().strip() == COMMAND_NAME


def test_a_child_that_is_killed_leaves_the_work_to_the_coordinator(writer):
    os.kill(writer.call(where)[0], signal.SIGKILL)
    assert writer.call(where, 7) == (os.getpid(), 7)
    assert writer.call(where)[0] == os.getpid()


def test_what_fails_in_the_child_is_done_again(writer):
    assert writer.call(fail_in_a_child) == os.getpid()
    with pytest.raises(ValueError, match="everywhere"):
        WarmWriter(WORK, lambda: None).call(fail)


def test_without_a_child_the_coordinator_does_the_work(monkeypatch):
    def refuse():
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", refuse)
    assert WarmWriter(WORK, lambda: None).call(where)[0] == os.getpid()


def test_the_child_ends_with_the_coordinator_and_after_a_while(writer, monkeypatch):
    pid = writer.call(where)[0]
    writer.close()
    await_end(pid)
    monkeypatch.setattr("mpicoloc.job.coordinator.IDLE_S", 0.05)
    idle = WarmWriter(WORK, lambda: None)
    await_end(idle._pid)
    assert idle.call(where)[0] == os.getpid()


def test_nobody_waits_for_the_childs_output():
    """A launcher reads what its processes print until nobody holds that open."""
    code = (
        "import os, time\nfrom mpicoloc.job.coordinator import WarmWriter\n"
        "WarmWriter([], lambda: time.sleep(8))\ntime.sleep(0.5)\nos._exit(0)"
    )
    began_s = time.monotonic()
    subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=LIMIT_S, check=True)
    assert time.monotonic() - began_s < 7


@pytest.fixture
def said(monkeypatch):
    """Arguments of all calls of `contract.tell_profile`, which is replaced."""
    found = []
    monkeypatch.setattr(coordinator.contract, "tell_profile", lambda *words: found.append(words))
    return found


def test_the_coordinator_asks_the_child_and_loads_nothing(monkeypatch, said):
    asked = []

    class Writer:
        def call(self, function, *arguments):
            asked.append(function)
            return (b"part", True) if function is coordinator._packed_part else ""

    monkeypatch.setattr(coordinator, "first_with", lambda comm, has_first: 0)
    monkeypatch.setattr(coordinator, "gather", lambda comm, content, root: [content])
    monkeypatch.setattr(coordinator, "bcast", lambda comm, own, root: own)
    coordinator._write_profile("key", None, Writer())
    assert asked == [coordinator._packed_part, coordinator._merge]
    assert said == [("key", coordinator.contract.MC_PROFILE_WRITTEN, "")]


class Ended:
    """As while the launcher ends the coordinator."""

    def call(self, function, *arguments):
        raise coordinator._Stopped


def test_a_coordinator_that_is_ended_while_it_gathers_does_not_call_the_profile_failed(said):
    """Or the keeper, which waits for the coordinator's word, would write none (Open MPI after quick_exit)."""
    with pytest.raises(coordinator._Stopped):
        coordinator._write_profile("key", None, Ended())
    assert not said


def test_a_coordinator_that_fails_tells_so(said):
    coordinator._write_profile("key", None, None)  # no communicator: AttributeError
    assert said == [("key", coordinator.contract.MC_PROFILE_FAILED, said[0][2])]
    assert "the coordinator failed" in said[0][2]
