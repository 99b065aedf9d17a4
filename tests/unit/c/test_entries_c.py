"""The entry of a function, found in programs of several compilers, with symbols and without: nm knows."""

from __future__ import annotations

import os
import random
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CSRC = ROOT / "csrc"
CC = shlex.split(os.environ.get("CC", "cc"))
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")

C_PROGRAM = "\n".join(
    ["#include <math.h>", "int n;"]
    + [f"static __attribute__((noinline)) double f{i}(double x) {{ " + f"x = sin(x + {i}); " * (i % 7 + 1)
       + "return n ? x : f0(x); }" if i else "__attribute__((noinline)) double f0(double x) { return x + n; }"
       for i in range(40)]
    + ["int main(int argc, char **argv) { (void)argv; double x = argc;"]
    + [f"x = f{i}(x);" for i in range(40)]
    + ["return x > 3; }"]
)  # fmt: skip
FORTRAN_PROGRAM = """
module parts
contains
  subroutine fill(a)
    real(8), intent(inout) :: a(:)
    a = a * 1.1d0 + 1
  end subroutine
  real(8) function total(a)
    real(8), intent(in) :: a(:)
    total = sum(a * a)
  end function
end module
program main
  use parts
  real(8) :: a(1000)
  a = 1
  call fill(a)
  print *, total(a)
end program
"""


def run(*command: str | Path, text: str = "") -> str:
    done = subprocess.run(
        [str(part) for part in command], input=text, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def entries_of(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("entries") / "entries_of"
    sources = [ROOT / "tests/c/agent/entries_of.c", CSRC / "agent/loop/entries.c"]
    run(
        *CC,
        "-std=gnu11",
        "-O1",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
        *SANITIZE,
        f"-I{CSRC}",
        *sources,
        "-o",
        program,
    )
    return program


def build(folder: Path, source: str, compiler: list[str], *flags: str) -> Path:
    is_fortran = "gfortran" in compiler[0]
    suffix, flags = (".f90", (*flags, f"-J{folder}")) if is_fortran else (".c", flags)
    (folder / f"a{suffix}").write_text(source)
    run(*compiler, "-O2", *flags, folder / f"a{suffix}", "-o", folder / "a", "-lm")
    return folder / "a"


def functions(program: Path) -> dict[int, int]:
    """Size of each function of the program's own by its address."""
    found = {}
    for line in run("nm", "-S", "--defined-only", program).splitlines():
        words = line.split()
        if len(words) == 4 and words[2] in "tT" and int(words[1], 16) > 0:
            found[int(words[0], 16)] = int(words[1], 16)
    return found


def load_bias(program: Path) -> int:
    """Address minus offset in the file of the executable part."""
    for line in run("readelf", "-lW", program).splitlines():
        words = line.split()
        if words[:1] == ["LOAD"] and "E" in "".join(words[6:-1]):
            return int(words[2], 16) - int(words[1], 16)
    raise AssertionError("no executable part")


def check(entries_of: Path, program: Path, known: dict[int, int], bias: int) -> None:
    """Every function's first, last and some inner places lead to its entry."""
    chosen = random.Random(1)
    asked, wanted = [], []
    for start, size in known.items():
        for place in {0, size - 1, chosen.randrange(size), chosen.randrange(size)}:
            asked.append(start + place - bias)
            wanted.append(start - bias)
    answers = run(entries_of, program, text="\n".join(f"{offset:x}" for offset in asked)).split()
    assert [None if answer == "-" else int(answer, 16) for answer in answers] == wanted


WAYS = {
    "plain": (),
    "fixed": ("-no-pie",),
    "static": ("-static",),
    "gold-like": ("-Wl,-z,noseparate-code",),
    "library": ("-shared", "-fPIC"),
}


@pytest.mark.parametrize("way", WAYS)
def test_functions_are_found_with_and_without_symbols(entries_of: Path, tmp_path: Path, way: str) -> None:
    program = build(tmp_path, C_PROGRAM, CC, *WAYS[way])
    # The C library, which comes with a static program, has functions within functions, some in assembly.
    own = named(program, "f", "main") if way == "static" else functions(program)
    bias = load_bias(program)
    own = {start: size for start, size in own.items() if size > 8}
    assert len(own) >= 40
    check(entries_of, program, own, bias)
    if way == "static":  # linkers give it no table of functions
        return
    run("strip", "-s", program)
    assert "no symbols" in subprocess.run(["nm", program], capture_output=True, text=True, check=False).stderr
    check(entries_of, program, own, bias)


def named(program: Path, prefix: str, *names: str) -> dict[int, int]:
    found = {}
    for line in run("nm", "-S", program).splitlines():
        words = line.split()
        if len(words) == 4 and (words[3] in names or (words[3][0] == prefix and words[3][1:].isdigit())):
            found[int(words[0], 16)] = int(words[1], 16)
    return found


def test_without_unwinding_tables_the_symbols_tell(entries_of: Path, tmp_path: Path) -> None:
    program = build(
        tmp_path, C_PROGRAM, CC, "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fno-exceptions"
    )
    own = named(program, "f", "main")
    assert len(own) >= 40
    check(entries_of, program, own, load_bias(program))
    run("strip", "-s", program)
    start = next(iter(own)) - load_bias(program)
    assert run(entries_of, program, text=f"{start:x}").split() == ["-"]


@pytest.mark.skipif(shutil.which("gfortran") is None, reason="no Fortran compiler")
def test_functions_of_a_fortran_program(entries_of: Path, tmp_path: Path) -> None:
    program = build(tmp_path, FORTRAN_PROGRAM, ["gfortran"], "-fno-inline")
    own = {start: size for start, size in functions(program).items() if size > 8}
    bias = load_bias(program)
    check(entries_of, program, own, bias)
    run("strip", "-s", program)
    check(entries_of, program, own, bias)


def test_what_is_no_program_is_refused(entries_of: Path, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("#!/bin/sh\n" * 100)
    for path in (text, tmp_path, tmp_path / "none", Path("/dev/null")):
        done = subprocess.run([str(entries_of), str(path)], capture_output=True, timeout=20, check=False)
        assert done.returncode == 1
