"""mpi4py's own test suite, compared test by test and rank by rank."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import suite_fetch
from suite_jobs import Comparison, Outcome, compare, execute
from suite_shims import Launch

HERE = Path(__file__).resolve().parent
# A second each; those of buffers take ten times as long for each array type, and C and Fortran have them.
SHORT = (
    *("test_attributes", "test_cco_obj", "test_comm_inter", "test_errhandler", "test_grequest"),
    *("test_p2p_obj", "test_request", "test_session"),
)
CORE = ("test_p2p_", "test_cco_", "test_comm", "test_rma", "test_win", "test_attributes", "test_request")


class Suite:
    """The suite on one MPI: "wheel" (the one beside this Python), or Debian's "openmpi" or "mpich".

    `limit_s` is for one module on all ranks.
    """

    def __init__(self, mpi: str, cache: Path, launch: Launch, limit_s: float) -> None:
        self.tests = suite_fetch.mpi4py(cache)
        self.launch, self.limit_s = launch, limit_s
        self.env = {"PYTHONDONTWRITEBYTECODE": "1", **mpi4py_environment(mpi, cache)}
        self.results = launch.folder.with_name(launch.folder.name + "-results")

    def modules(self, part: str, only: list[str]) -> list[str]:
        """Names of the test modules."""
        found = sorted(path.stem for path in self.tests.glob("test_*.py"))
        if part == "short":
            found = [name for name in found if name in SHORT]
        elif part == "core":
            found = [name for name in found if name.startswith(CORE)]
        return [name for name in found if any(word in name for word in only)]

    def run(self, module: str, n_ranks: int) -> tuple[list[Comparison], int]:
        """One comparison for each test of a module; and in how many runs the shim was seen."""
        words = [
            sys.executable,
            str(HERE / "suite_mpi4py_rank.py"),
            str(self.tests),
            str(self.results),
            module,
        ]
        tables: dict[str, list[dict[str, str]]] = {"bare": [], "shim": []}
        seen = 0

        def bare() -> Outcome:
            return note("bare", *execute(self.launch.bare(n_ranks, words), *settings(self.env)))

        def shimmed() -> Outcome:
            nonlocal seen
            env = {**self.env, **self.launch.env()}
            outcome = note("shim", *execute(self.launch.shimmed(n_ranks, words), *settings(env)))
            seen += self.launch.seen()
            return outcome

        def settings(env: dict[str, str]) -> tuple[Path, float, dict[str, str]]:
            shutil.rmtree(self.results, ignore_errors=True)
            self.results.mkdir()
            return self.results, self.limit_s, env

        def note(side: str, status: str, _output: str) -> Outcome:
            table = self._table()
            if status != "timeout":  # what a run did not reach in time says nothing about the tests
                tables[side].append(table)
            lines = tuple(f"{test}: {outcome}" for test, outcome in sorted(table.items()))
            return Outcome(status, status == "exit 0", lines)

        whole = compare(module, bare, shimmed)
        shutil.rmtree(self.results, ignore_errors=True)
        return [whole, *by_test(module, tables)], seen

    def _table(self) -> dict[str, str]:
        """Outcome of every test, the ranks' in turn."""
        found: dict[str, list[str]] = {}
        for file in sorted(self.results.glob("rank*.txt")):
            for line in file.read_text(errors="replace").splitlines():
                test, _, outcome = line.partition("\t")
                found.setdefault(test, []).append(outcome)
        return {test: "; ".join(outcomes) for test, outcomes in found.items()}


def by_test(module: str, tables: dict[str, list[dict[str, str]]]) -> list[Comparison]:
    """The runs of a module, taken apart into tests."""
    names = sorted({name for runs in tables.values() for table in runs for name in table if name != "done"})
    made: list[Comparison] = []
    for name in names if all(tables.values()) else ():
        sides = {side: [_outcome(table.get(name)) for table in runs] for side, runs in tables.items()}
        one = Comparison(f"{module}: {name}", sides["bare"], sides["shim"])
        bare, shim = set(one.bare), set(one.shim)
        if bare != shim or len(bare) > 1:
            steady = len(bare) == 1 and not bare & shim
            one.kind = "differs" if steady else "once" if len(bare) == 1 else "noisy"
        made.append(one)
    return made


def _outcome(text: str | None) -> Outcome:
    if text is None:
        return Outcome("not reached", False)
    passed = all(part == "ok" for part in text.split("; "))
    return Outcome("ok" if passed else text, passed)


def mpi4py_environment(mpi: str, cache: Path) -> dict[str, str]:
    """Variables that make mpi4py's wheel load Debian's MPI; none for the MPI beside this Python.

    mpi4py asks for MPICH's own name, libmpi.so.12: in `cache` that is a link to Debian's libmpich.so.12.
    """
    if mpi == "wheel":
        return {}
    if mpi == "openmpi":
        return {"MPI4PY_MPIABI": "openmpi"}
    folder = cache / "libmpich"
    folder.mkdir(parents=True, exist_ok=True)
    library = next((path for path in Path("/usr/lib").glob("*/libmpich.so.12") if path.exists()), None)
    link = folder / "libmpi.so.12"
    if library and not link.exists():
        link.symlink_to(library)
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("LD_LIBRARY_PATH")]))
    return {"MPI4PY_MPIABI": "mpich", "LD_LIBRARY_PATH": path}
