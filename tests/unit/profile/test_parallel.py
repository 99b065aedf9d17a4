"""The same work on many files, in processes that may crash."""

import os
import signal
import time

import pytest

from mpicoloc.errors import DataError, EnvironmentFault
from mpicoloc.profile import hdf5, profiles as module, sandbox

LIMIT_S = 40
pytestmark = pytest.mark.timeout(2 * LIMIT_S)


@pytest.fixture(params=[1, 3, 100])
def n_together(request, monkeypatch):
    """Files of one process at most."""
    monkeypatch.setattr(module, "_MAX_FILES", request.param)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})


def test_each_file_has_its_own_answer_however_many_are_read_together(tmp_path, n_together):
    paths = [str(tmp_path / f"{i:02}.h5") for i in range(40)]
    for path in paths[:-1]:
        with open(path, "w") as file:
            file.write(path)

    def work(path, raw):
        if path.endswith("7.h5"):
            os.abort()
        if path.endswith("30.h5"):
            raise DataError(f"{path} is thirty")
        return {"said": raw.read().decode()}

    found = dict(module.parallel_map(paths, work))
    assert set(found) == set(paths)
    for path, answer in found.items():
        if path.endswith(("7.h5", "30.h5")) or path == paths[-1]:
            assert isinstance(answer, DataError) and path in str(answer)
        else:
            assert answer == {"said": path}


def test_a_process_answers_for_its_own_files_only(files, n_together):
    def work(path, raw):
        if path == files[0]:
            for handle in map(int, os.listdir("/proc/self/fd")):
                try:
                    os.write(handle, b'{"said": "forged"}\n' * 6)
                except OSError:
                    continue
            os._exit(0)
        return {"said": path}

    found = dict(module.parallel_map(files, work))
    assert isinstance(found.pop(files[0]), DataError)
    assert found == {path: {"said": path} for path in files[1:]}


@pytest.fixture
def files(tmp_path):
    paths = [str(tmp_path / f"{i}.h5") for i in range(24)]
    for path in paths:
        open(path, "w").close()
    return paths


def stopped(path, raw):
    if path.endswith(("/0.h5", "/9.h5", "/23.h5")):
        os.kill(os.getpid(), signal.SIGSTOP)
    return {"said": path}


def babbling(path, raw):
    """One byte now and then is no answer: what took the process over may know that silence is noticed."""
    if path.endswith(("/0.h5", "/9.h5", "/23.h5")):
        pipe = next(int(name) for name in os.listdir("/proc/self/fd") if is_pipe(name))
        while True:
            os.write(pipe, b" ")
            signal.sigtimedwait([], 0.05)
    return {"said": path}


def is_pipe(handle):
    try:
        return os.readlink(f"/proc/self/fd/{handle}").startswith("pipe:")
    except OSError:
        return False


@pytest.mark.parametrize("hang", [stopped, babbling])
def test_a_file_that_is_never_answered_costs_its_own_answer(files, monkeypatch, hang):
    monkeypatch.setattr(sandbox, "WAIT_S", 2.5)
    found = dict(module.parallel_map(files, hang))
    assert set(found) == set(files)
    for path, answer in found.items():
        if path in (files[0], files[9], files[23]):
            assert isinstance(answer, EnvironmentFault)
            assert str(answer).startswith(f"{path} could not be read within 2.5 s")
        else:
            assert answer == {"said": path}


def test_of_files_that_are_opened_together_the_one_that_hangs_is_blamed(files, monkeypatch):
    """A server that does not reply holds the process before its first answer."""
    monkeypatch.setattr(sandbox, "WAIT_S", 2.5)
    readable = hdf5.readable

    def never_opened(path):
        if path == files[17]:
            signal.pause()
        return readable(path)

    monkeypatch.setattr(hdf5, "readable", never_opened)
    found = dict(module.parallel_map(files, lambda path, raw: {"said": path}))
    assert {path for path, answer in found.items() if answer != {"said": path}} == {files[17]}


def test_the_time_of_whoever_asks_is_not_that_of_who_answers(files, monkeypatch):
    monkeypatch.setattr(sandbox, "WAIT_S", 2.5)
    answers = module.parallel_map(files, lambda path, raw: {"said": "x" * 200_000})
    next(answers)
    signal.sigtimedwait([], 3.0)
    assert not any(isinstance(answer, Exception) for _, answer in answers)


@pytest.fixture
def immortal(monkeypatch):
    """Processes that a kill does not reach, as it is while they sleep in the kernel; gone afterwards."""
    kill = os.kill
    monkeypatch.setattr(sandbox, "END_S", 0.5)
    monkeypatch.setattr(sandbox.os, "kill", lambda pid, number: None)
    yield
    while sandbox._LEFT:  # nobody has waited for them, so these numbers are still theirs
        kill(sandbox._LEFT[-1], signal.SIGKILL)
        os.waitpid(sandbox._LEFT.pop(), 0)


def asleep(path, raw):
    if path.endswith(("/0.h5", "/9.h5", "/23.h5")):
        signal.pause()
    return {"said": path}


def test_a_process_that_cannot_be_killed_is_left(files, monkeypatch, immortal):
    monkeypatch.setattr(sandbox, "WAIT_S", 2.5)
    found = dict(module.parallel_map(files, asleep))
    assert sum(isinstance(answer, EnvironmentFault) for answer in found.values()) == 3
    monkeypatch.setattr(sandbox, "WAIT_S", 0.5)
    with pytest.raises(DataError):
        sandbox.run_in_child("hung", signal.pause, bytes)
    left = list(sandbox._LEFT)
    assert len(left) >= 4
    monkeypatch.undo()
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    deadline_s = time.monotonic() + LIMIT_S
    while sandbox._LEFT and time.monotonic() < deadline_s:
        assert sandbox.run_in_child("well", lambda: [b"x"], bytes) == b"x"
    assert sandbox._LEFT == [], "they are waited for when they have ended"
    for pid in left:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
