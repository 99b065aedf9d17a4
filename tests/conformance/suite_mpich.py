"""MPICH's own test suite: configures and builds parts of it for one MPI, and reads its lists of tests."""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import suite_fetch
from suite_jobs import Comparison, Outcome, compare, execute, normal_lines
from suite_shims import Launch

DIRS = (
    *("pt2pt", "coll", "comm", "attr", "errhan", "rma", "datatype", "group", "topo", "init", "info"),
    *("threads", "io", "spawn", "part", "f77", "f90", "f08", "cxx"),
)
LANGUAGE_DIRS = {"f77", "f90", "f08", "cxx"}
_NO_ERRORS = re.compile(r"^\s*No [Ee]rrors\s*$", re.M)
_EXPECTED = re.compile(r"^\s*(No [Ee]rrors|Test Passed|.*FORTRAN STOP.*)?\s*$")
_CONFIGURE_LIMIT_S, _BUILD_LIMIT_S = 900, 3600
CORE_RANKS, CORE_LIMIT_S = 4, 60


@dataclass(frozen=True)
class Test:
    """One line of a test list."""

    folder: str
    program: str
    n_ranks: int
    args: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    launcher_args: tuple[str, ...]
    result: str
    limit_s: float | None
    mem_gib: float

    @property
    def name(self) -> str:
        """As in the list, folder included."""
        setting = [f"{key}={value}" for key, value in self.env]
        return " ".join([f"{self.folder}/{self.program}", str(self.n_ranks), *self.args, *setting])

    def is_in(self, part: str) -> bool:
        """Whether the test belongs to a part of the suite: "all", "core" or "short"."""
        return part == "all" or self._is_core()

    def _is_core(self) -> bool:
        """Short enough, few ranks, and not a repetition with other settings of MPICH's."""
        return (
            self.n_ranks <= CORE_RANKS
            and (self.limit_s or 0) <= CORE_LIMIT_S
            and self.mem_gib < 1
            and not any(key.startswith("MPIR_") for key, _ in self.env)
        )


def parse_list(text: str, folder: str, xfail: bool = False) -> list[Test]:
    """Tests of one list, without those expected to fail and those beyond the standard.

    The format is that of MPICH's `runtests`: a program, its number of ranks, and words KEY=VALUE.
    """
    tests = []
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if not words or words[0].startswith("!"):
            continue
        pairs = [_pair(word) for word in words[2:] if "=" in word]
        single = {key: value for key, value in pairs if key not in ("arg", "env", "mpiexecarg")}
        if (single.get("xfail") and not xfail) or single.get("mpix", "").lower() == "true":
            continue
        tests.append(
            Test(
                folder=folder,
                program=words[0],
                n_ranks=int(words[1]) if len(words) > 1 and words[1].isdigit() else 2,
                args=tuple(value for key, value in pairs if key == "arg"),
                env=tuple(_pair(value) for key, value in pairs if key == "env"),
                launcher_args=tuple(value for key, value in pairs if key == "mpiexecarg"),
                result=single.get("resultTest", ""),
                limit_s=float(single["timeLimit"]) if single.get("timeLimit", "").isdigit() else None,
                mem_gib=float(single.get("mem", 0)),
            )
        )
    return tests


def _pair(word: str) -> tuple[str, str]:
    key, _, value = word.partition("=")
    return key, value


def commands_of(mpi: str) -> dict[str, str]:
    """Compilers and launcher: Debian's, by suffix, else those without; "wheel": those beside this Python."""
    names = {name.upper(): name for name in ("mpicc", "mpicxx", "mpif77")}
    names |= {"MPIFC": "mpif90", "MPIEXEC": "mpirun"}
    if mpi == "wheel":
        return {key: str(Path(sys.prefix, "bin", name)) for key, name in names.items()}
    return {key: shutil.which(f"{name}.{mpi}") or shutil.which(name) or name for key, name in names.items()}


class Suite:
    """The suite, configured for one MPI (see `commands_of`), with Fortran and C++ if asked, in the cache.

    `say` is told what is being done.
    """

    def __init__(self, mpi: str, cache: Path, fortran: bool, say: Callable[[str], None]) -> None:
        self.mpi, self.fortran, self.say = mpi, fortran, say
        self.source = suite_fetch.mpich(cache)
        self.build = cache / f"build-{mpi}{'' if fortran else '-c'}"

    def configure(self) -> None:
        """Once, and by one at a time: two in one folder leave a suite that leaves out what it could test."""
        self.build.mkdir(parents=True, exist_ok=True)
        with (self.build / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (self.build / "pt2pt" / "Makefile").exists():
                self.say(f"configuring for {self.mpi}")
                self._configure()

    def _configure(self) -> None:
        """A copy of `configure` of our own lets f08 be built outside MPICH's tree."""
        script = self.source / "configure"
        script.write_text(script.read_text().replace(' -a "$FROM_MPICH" = "yes" ; then', " ; then"))
        # Unoptimized because that compiles in a fraction of the time; and old programs call one name with
        # buffers of several types.
        settings = [*(f"{name}={path}" for name, path in commands_of(self.mpi).items()), "CC=gcc"]
        settings += [
            "CFLAGS=-O0",
            *(f"{name}=-O0 -fallow-argument-mismatch" for name in ("FFLAGS", "FCFLAGS")),
        ]
        # Open MPI hides, but has, what MPI-3 removed; the suite's own library calls some of it.
        settings += ["CPPFLAGS=-DOMPI_OMIT_MPI1_COMPAT_DECLS=0"]
        words = ["--enable-threads=multiple", "--disable-dependency-tracking"]
        words += ["--enable-fortran=all"] if self.fortran else ["--disable-fortran", "--disable-cxx"]
        self._logged([str(script), *words, *settings], "configure.log", _CONFIGURE_LIMIT_S, True)

    def make(self, folder: str, programs: Iterable[str] | None = None) -> None:
        """Build programs of a folder, or all of them; those that this MPI cannot compile are left out."""
        if not (self.build / "made-util").exists():
            # -k: the part for C++ bindings, which MPI-3 removed, may not compile
            self._logged(["make", "-k", "-C", "util"], "make-util.log", _BUILD_LIMIT_S, False)
            (self.build / "made-util").touch()
        missing = [name for name in programs or () if not (self.build / folder / name).exists()]
        if programs is not None and not missing:
            return
        self.say(f"building {folder}: {len(missing) or 'all'}")
        words = ["make", "-k", "-C", folder, *missing]
        self._logged(words, f"make-{folder.replace('/', '-')}.log", _BUILD_LIMIT_S, False)

    def tests(self, folder: str) -> list[Test]:
        """All tests of a folder and of those in it."""
        lists = [self.build / folder / "testlist", self.source / folder / "testlist"]
        text = next((path.read_text() for path in lists if path.exists()), "")
        found = []
        for test in parse_list(text, folder):
            inner = f"{folder}/{test.program}"
            found += self.tests(inner) if (self.source / inner).is_dir() else [test]
        return found

    def _logged(self, words: list[str], log: str, limit_s: float, check: bool) -> None:
        with (self.build / log).open("w") as output:
            done = subprocess.run(
                words, cwd=self.build, stdout=output, stderr=subprocess.STDOUT, timeout=limit_s, check=False
            )
        if check and done.returncode:
            sys.exit(f"{words[0]} failed: see {self.build / log}")


def has_passed(status: str, output: str, result: str) -> bool:
    """The verdict of MPICH's `runtests`."""
    if result in ("TestStatus", "TestErrFatal"):
        return status not in ("exit 0", "timeout")
    if result == "TestStatusNoErrors":
        return status != "timeout" and bool(_NO_ERRORS.search(output))
    return (
        status == "exit 0"
        and bool(_NO_ERRORS.search(output))
        and all(_EXPECTED.match(line) for line in output.splitlines())
    )


def run_test(suite: Suite, launch: Launch, test: Test, limit_s: float) -> tuple[Comparison, int]:
    """Compare one test bare and with the shim; also the number of runs in which the shim left its traces."""
    folder = suite.build / test.folder
    words = [f"./{test.program}", *test.args]
    limit_s = min(test.limit_s or limit_s, limit_s)
    seen = 0

    def bare() -> Outcome:
        return _outcome(launch.bare(test.n_ranks, words, test.launcher_args), {})

    def shimmed() -> Outcome:
        nonlocal seen
        outcome = _outcome(launch.shimmed(test.n_ranks, words, test.launcher_args), launch.env())
        seen += launch.seen()
        return outcome

    def _outcome(command: list[str], env: dict[str, str]) -> Outcome:
        status, output = execute(command, folder, limit_s, {**env, **dict(test.env)})
        lines = () if status == "timeout" else normal_lines(output)
        return Outcome(status, has_passed(status, output, test.result), lines)

    return compare(test.name, bare, shimmed), seen
