"""One rank of a run of mpi4py's tests: runs modules and writes a line for each test when it ends.

python suite_mpi4py_rank.py FOLDER_OF_TESTS FOLDER_OF_RESULTS MODULE...
"""

import sys
import unittest
from pathlib import Path


class Recorder(unittest.TestResult):
    """Writes `test<TAB>outcome` at once, so that what precedes a crash is kept."""

    def __init__(self, file):
        super().__init__()
        self.file = file

    def note(self, test, outcome):
        self.file.write(f"{test}\t{outcome}\n")
        self.file.flush()

    def addSuccess(self, test):
        self.note(test, "ok")

    def addError(self, test, err):
        self.note(test, f"error {err[0].__name__}: {' '.join(str(err[1]).split())[:200]}")

    def addFailure(self, test, err):
        self.note(test, f"failure {err[0].__name__}: {' '.join(str(err[1]).split())[:200]}")

    def addSkip(self, test, reason):
        self.note(test, f"skip {reason}")

    def addExpectedFailure(self, test, err):
        self.note(test, "expected failure")

    def addUnexpectedSuccess(self, test):
        self.note(test, "unexpected success")

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.note(subtest, f"failure {err[0].__name__}")


def main(tests, results, *modules):
    sys.dont_write_bytecode = True
    # as mpi4py's own main.py does
    sys.modules["cupy"] = sys.modules["numba"] = None
    sys.path.insert(0, tests)
    from mpi4py import MPI

    suite = unittest.TestLoader().loadTestsFromNames(modules)
    with (Path(results) / f"rank{MPI.COMM_WORLD.Get_rank()}.txt").open("w") as file:
        suite.run(Recorder(file))
        file.write("done\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
