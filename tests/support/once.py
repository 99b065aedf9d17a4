"""Results and files that several tests need: the first process that asks makes them, once in a run."""

import contextlib
import fcntl
import os
import pickle
from pathlib import Path


def folder(tmp_path_factory):
    """A folder that all processes of the run share: launch/test's, or pytest's own."""
    if "TESTS_MADE_DIR" in os.environ:
        return Path(os.environ["TESTS_MADE_DIR"])
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@contextlib.contextmanager
def alone(path):
    """Hold the lock of a file to be made, against other processes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def value(path, make):
    """Result of `make()`, which only the first process to ask for this path calls."""
    with alone(path):
        if not path.exists():
            made = pickle.dumps(make())
            path.write_bytes(made)
        return pickle.loads(path.read_bytes())
