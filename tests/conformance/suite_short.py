"""A few programs of MPICH's suite, of every folder and language, built without its configure and its make.

Those take most of a minute for each MPI, to find out what is known of every system that has this MPI.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

from suite_mpich import Suite, Test, commands_of, parse_list

# On one or two ranks; what past changes broke first. Spawned processes and connections are those of
# tests/mpi/conformance; the folder cxx needs what MPI-3 removed.
SHORT = {
    "pt2pt": "anyall bottom mprobe",
    "coll": "alltoallw_zeros iallred",
    "comm": "comm_idup probe_intercomm",
    "attr": "attrend2 fkeyvalcomm",
    "errhan": "commcall",
    "rma": "wintest",
    "datatype": "contents",
    "group": "groupnullincl",
    "topo": "topotest",
    "init": "initstat",
    "info": "infodup",
    "threads/init": "initth",
    "threads/pt2pt": "threaded_sr",
    "io": "i_noncontig userioerr",
    "part": "nonblocking_pready",
    "f77/attr": "commattrf",
    "f77/pt2pt": "statusesf",
    "f90/coll": "inplacef90",
    "f90/comm": "commerrf90",
    "f08/attr": "commattrf08",
    "f08/coll": "inplacef08",
    "f08/pt2pt": "statusesf08",
}
_UTIL = {
    "c": ("mtest.c", "mtest_common.c", "mtest_thread.c"),
    "f77": ("mtest_f77.f",),
    "f90": ("mtest_f90.f90",),
    "f08": ("mtest_f08.f90",),
}
_HAVE = (
    *("INTTYPES_H", "STDARG_H", "STDINT_H", "STDLIB_H", "STRING_H", "SYS_RESOURCE_H", "SYS_TIME_H"),
    *("SYS_STAT_H", "UNISTD_H", "PTHREAD_H", "GETRUSAGE", "STRDUP", "USLEEP", "LONG_LONG", "LONG_DOUBLE"),
    *("MPI_IO", "MPI_WIN_CREATE"),
)
_BUILD_LIMIT_S = 120


class ShortSuite(Suite):
    """The short part for one MPI; see `suite_mpich.Suite`."""

    def __init__(self, mpi: str, cache: Path, fortran: bool, say: Callable[[str], None]) -> None:
        super().__init__(mpi, cache, fortran, say)
        self.build = cache / f"short-{mpi}"
        self.commands = commands_of(mpi)

    def configure(self) -> None:
        """Write what the programs include."""
        include = self.build / "include"
        include.mkdir(parents=True, exist_ok=True)
        lines = ["#define THREAD_PACKAGE_NAME THREAD_PACKAGE_POSIX", *(f"#define HAVE_{x} 1" for x in _HAVE)]
        (include / "mpitestconf.h").write_text("\n".join([*lines, ""]))
        for template in self.source.glob("f77/*/*aints.h.in"):
            text = template.read_text().replace("@F77_MPI_ADDRESS@", "integer*8")
            (include / template.stem).write_text(text)

    def make(self, folder: str, programs: Iterable[str] | None = None) -> None:
        """Build programs of a folder; those that this MPI cannot compile are left out."""
        language = folder.partition("/")[0]
        language = language if language in _UTIL else "c"
        (self.build / folder).mkdir(parents=True, exist_ok=True)
        for program in programs or ():
            out = self.build / folder / program
            if not out.exists():
                (source,) = (self.source / folder).glob(f"{program}.[cf]*")
                self._compile(language, [source, *self._objects(language), "-o", out])

    def tests(self, folder: str) -> list[Test]:
        """One for each program that is chosen from a folder: a list may have it with many arguments."""
        file = next((self.source / folder).glob("testlist*"))
        found = {test.program: test for test in reversed(parse_list(file.read_text(), folder))}
        return [found[program] for program in SHORT.get(folder, "").split()]

    def _objects(self, language: str) -> list[Path]:
        """The suite's own library."""
        objects = []
        for name in _UTIL[language]:
            out = self.build / f"{name}.o"
            if not out.exists():
                self._compile(language, ["-c", self.source / "util" / name, "-o", out])
            objects.append(out)
        return objects

    def _compile(self, language: str, words: list[str | Path]) -> None:
        flags = ["-O0", "-w", f"-I{self.build / 'include'}"]
        if language == "c":
            # Open MPI hides, but has, what MPI-3 removed; the suite's own library calls some of it.
            flags += [f"-I{self.source / 'include'}", "-DOMPI_OMIT_MPI1_COMPAT_DECLS=0", "-pthread"]
        else:
            flags += ["-fallow-argument-mismatch", f"-J{self.build / 'include'}"]
        command = self.commands[{"c": "MPICC", "f77": "MPIF77"}.get(language, "MPIFC")]
        with (self.build / "compile.log").open("a") as log:
            everything = [command, *flags, *map(str, words)]
            subprocess.run(
                everything, stdout=log, stderr=subprocess.STDOUT, timeout=_BUILD_LIMIT_S, check=False
            )
