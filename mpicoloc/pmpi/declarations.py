"""The functions that an installed ``mpi.h`` declares. Standard library only."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_PROTOTYPE = re.compile(
    r"^\s*(?:extern\s+)?(\w[\w\s]*?[\s*]+)(MPIX?_[A-Z][a-z0-9_]*)\s*\((.*)\)\s*$", re.DOTALL
)


# Open MPI 4.1 has persistent collectives as extensions only.
INCLUDES = """#include <{header}>
#if defined(OPEN_MPI) && __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
"""


def base_name(name: str) -> str:
    """A function's name without MPI_ or MPIX_."""
    return re.sub("^MPIX?_", "", name)


@dataclass(frozen=True)
class Param:
    """One parameter: its whole declaration, its name, and its type without the name."""

    decl: str
    name: str
    type: str

    @property
    def is_comm(self) -> bool:
        """Whether it is a communicator by value, which may have to be swapped."""
        return self.type == "MPI_Comm"

    @property
    def is_text(self) -> bool:
        """Whether Fortran passes the length of it too."""
        return re.search(r"\bchar\b", self.type) is not None


@dataclass(frozen=True)
class Prototype:
    """A function of ``mpi.h`` that returns ``returns``."""

    name: str
    params: tuple[Param, ...]
    returns: str = "int"
    is_variadic: bool = False

    @property
    def decl(self) -> str:
        """Its parameters as declared."""
        params = [p.decl for p in self.params] + (["..."] if self.is_variadic else [])
        return ", ".join(params) or "void"

    @property
    def arguments(self) -> str:
        """Its parameters' names, to pass them on."""
        return ", ".join(p.name for p in self.params)


def preprocess(cc: Sequence[str], include_dirs: Iterable[str], header: str) -> str:
    """The text of ``header`` after the C preprocessor."""
    command = [*cc, "-E", "-P", *(f"-I{path}" for path in include_dirs)]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "header.c"
        source.write_text(INCLUDES.format(header=header), encoding="utf-8")
        done = subprocess.run(
            [*command, str(source)], capture_output=True, text=True, check=False, timeout=120
        )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} on <{header}> failed: {done.stderr.strip()[-2000:]}")
    return done.stdout


def parse_prototypes(text: str) -> list[Prototype]:
    """All functions named ``MPI_Xxx`` or ``MPIX_Xxx`` that preprocessed text declares, in its order, once."""
    found: dict[str, Prototype] = {}
    for statement in _without_bodies(_without_attributes(text)).split(";"):
        prototype = _parse_statement(statement)
        if prototype is not None:
            found.setdefault(prototype.name, prototype)
    return list(found.values())


def _without_attributes(text: str) -> str:
    out, at = [], 0
    for match in re.finditer(r"__attribute__\s*\(|__asm__\s*\(|_Static_assert\s*\(", text):
        if match.start() < at:
            continue
        out.append(text[at : match.start()])
        at = _closing(text, match.end())
    return "".join(out) + text[at:]


def _closing(text: str, at: int) -> int:
    """The position behind the bracket that closes the one before ``at``."""
    depth = 1
    while depth and at < len(text):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
    return at


def _without_bodies(text: str) -> str:
    """Braces and what is in them become statement ends: no prototype stands inside a struct or a body."""
    out, depth = [], 0
    for piece in re.split(r"([{}])", text):
        if piece in "{}" and piece:
            depth += 1 if piece == "{" else -1
            out.append(";")
        elif depth == 0:
            out.append(piece)
    return "".join(out)


def _parse_statement(statement: str) -> Prototype | None:
    match = _PROTOTYPE.match(re.sub(r"\b__extension__\b|\b__inline\b", " ", statement))
    if match is None or re.search(r"\btypedef\b", match.group(1)):
        return None
    returns, name, inside = match.groups()
    pieces = [" ".join(piece.split()) for piece in _split_arguments(inside)]
    is_variadic = "..." in pieces
    pieces = [piece for piece in pieces if piece not in ("", "void", "...")]
    params = tuple(_parse_param(piece, i) for i, piece in enumerate(pieces))
    return Prototype(name, params, " ".join(returns.split()), is_variadic)


def _split_arguments(text: str) -> list[str]:
    pieces, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(char, 0)
        if char == "," and depth == 0:
            pieces.append(text[start:i])
            start = i + 1
    return [*pieces, text[start:]]


def _parse_param(decl: str, i: int) -> Param:
    match = re.match(r"^(.*?[\s*])(\w+)\s*((?:\[[^\]]*\])*)$", decl)
    if match is None or match.group(2) in ("int", "char", "const"):
        name = f"mc_arg{i}"
        return Param(f"{decl} {name}", name, decl)
    before, name, brackets = match.groups()
    return Param(decl, name, (before.strip() + " " + brackets).strip())
