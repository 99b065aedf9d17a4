"""The rooms of docs/explain/architecture.md: what each may import, what it alone imports, which are pure."""

import ast
import functools
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from mpicoloc.cli import main

PACKAGE = Path(__file__).resolve().parents[2] / "mpicoloc"


@dataclass(frozen=True)
class Room:
    """One row of the picture: a folder, or a file of it that stands lower than its folder.

    `imports` are rooms of the package, `libraries` what it may import besides the standard library, `owns`
    those that no other room imports. `is_pure`: it touches no file, process, clock or global random state.
    """

    imports: str = ""
    libraries: str = ""
    owns: str = ""
    is_pure: bool = False


BASE = "errors messages config core core/record core/number_lists core/counters"
_PRICES = "bill/price bill/pricings"
_ESTIMATES = "bubble/calibration bubble/shutters"
_FLAGS = "cli/arguments"
_PROFILES = f"{BASE} pmpi measure network show {_PRICES} {_ESTIMATES}"
_VERBS = f"{_PROFILES} profile trace network/files {_FLAGS}"
_JOBS = f"{_VERBS} trace/export network/figures network/flags network/terminal job"
_DECIDE = f"{_JOBS} bubble replay pairing place"
_NUMBERS = "numpy scipy"
_DRAWN = "numpy scipy pandas rich matplotlib markupsafe pyarrow"
"""Libraries with which a subject makes its own tables, figures and pages, through `show`."""
ROOMS = {
    "errors": Room(),
    "messages": Room("errors"),
    "regions": Room(),
    "core/record": Room(),
    "core/number_lists": Room(),
    "core/counters": Room("core/record"),
    "bill/pricings": Room("errors"),
    "config": Room("errors core/record core/number_lists core/counters bill/pricings"),
    "core": Room("errors core/record core/number_lists core/counters", libraries="numpy"),
    "pmpi": Room(BASE, libraries="numpy", owns="cffi pycparser"),
    "measure": Room(BASE, libraries=_NUMBERS, is_pure=True),
    "network": Room(BASE, libraries=_NUMBERS, owns="yaml", is_pure=True),
    "show": Room(BASE, libraries=_DRAWN, owns="jinja2"),
    # Parts of two subjects that every profile has: its price, and what bubbles in its shutters say.
    "bill/price": Room(f"{BASE} bill/pricings", libraries=_NUMBERS, is_pure=True),
    **dict.fromkeys(
        _ESTIMATES.split(), Room(f"{BASE} measure {_ESTIMATES}", libraries=_NUMBERS, is_pure=True)
    ),
    "profile": Room(f"{_PROFILES} trace {_FLAGS}", libraries=_DRAWN, owns="h5py"),
    "trace": Room(_PROFILES, libraries="numpy pandas"),
    "network/files": Room(f"{_PROFILES} profile trace", libraries="numpy"),
    "network/figures": Room(_PROFILES, libraries=_DRAWN),
    "network/terminal": Room(f"{_PROFILES} profile", libraries=_DRAWN),
    "network/flags": Room(f"{BASE} {_FLAGS}"),
    "trace/export": Room(_VERBS, libraries=f"{_DRAWN} otf2"),
    "job": Room(_VERBS, libraries=_DRAWN, owns="mpi4py prometheus_client"),
    "replay": Room(_JOBS, libraries=f"{_DRAWN} otf2"),
    "bubble": Room(f"{_JOBS} replay", libraries=_DRAWN),
    "pairing": Room(f"{_JOBS} bubble replay", libraries=_DRAWN, owns="rustworkx"),
    "pairing/training": Room(
        f"{BASE} network pairing", libraries=_NUMBERS, owns="sklearn threadpoolctl", is_pure=True
    ),
    "place": Room(f"{_JOBS} bubble replay pairing", libraries=_DRAWN),
    "batch": Room(_DECIDE, libraries=_DRAWN),
    "bill": Room(_JOBS, libraries=_DRAWN, owns="sqlalchemy"),
    "slurm": Room(f"{_DECIDE} batch bill", libraries="numpy"),
    "lab": Room(f"{_DECIDE} batch bill", libraries="numpy"),
    # What several verbs share.
    "cli/arguments": Room(f"{BASE} profile show"),
}
"""Rooms of docs/explain/architecture.md: folders, and files of a folder that stand apart from it."""
VERBS = {module.replace(".", "/") for module in main.MODULES.values()}
DOORS = {"cli", "wrap", "__init__", "__main__", *VERBS}
"""Entry points for people and programs: they may import anything, and only `cli.main` imports them."""
OWNERS = {library: room for room, row in ROOMS.items() for library in row.owns.split()}
FILES = sorted(PACKAGE.rglob("*.py"))
IMPURE = {"os", "time", "random", "subprocess", "socket", "pathlib", "tempfile"}


def room_of(words):
    """The room of a module, which is given by its words below the package."""
    for n in range(len(words), 0, -1):
        name = "/".join(words[:n])
        if name in ROOMS or name in DOORS:
            return name
    return None


def home(path):
    return room_of(path.relative_to(PACKAGE).with_suffix("").parts)


@functools.cache
def imported(path):
    """Every module that a file names in an import statement."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def wrong_arrow(room, name):
    """Error text if a room must not import another, else None."""
    words = name.split(".")
    if room in DOORS or words[0] != "mpicoloc":
        return None
    below = room_of(words[1:])
    is_allowed = below in (None, room) or below in ROOMS[room].imports.split()
    return None if is_allowed else f"{room} must not import {name}"


def wrong_library(room, name):
    """Error text if a room must not import a library, else None."""
    library = name.split(".")[0]
    if library in OWNERS:
        return None if room == OWNERS[library] else f"{library} belongs to {OWNERS[library]}, not to {room}"
    if room not in ROOMS or library in ("mpicoloc", "__future__"):
        return None
    is_allowed = library in sys.stdlib_module_names or library in ROOMS[room].libraries.split()
    return None if is_allowed else f"{room} must not import {library}"


def impurity(room, name):
    """Error text if a pure room imports a module of files, processes, clocks or random numbers, else None."""
    is_pure = room in ROOMS and ROOMS[room].is_pure
    return f"{room} is pure: no {name}" if is_pure and name.split(".")[0] in IMPURE else None


def mistakes(rule):
    """Error texts of a rule for the imports of all files."""
    return [
        f"{path.relative_to(PACKAGE)}: {wrong}"
        for path in FILES
        for name in imported(path)
        if (wrong := rule(home(path), name)) is not None
    ]


def test_every_folder_is_a_room():
    """A new folder gets a row in the table, where everybody sees what it may import."""
    homes = {path: home(path) for path in FILES}
    assert not [str(path) for path, room in homes.items() if room is None and path.name != "__init__.py"]
    for room in ROOMS:
        assert (PACKAGE / room).is_dir() or (PACKAGE / f"{room}.py").exists(), f"no {room}"


def test_every_verb_stands_in_its_subject():
    assert all((PACKAGE / f"{verb}.py").exists() for verb in VERBS)
    assert {verb for verb in VERBS if verb.startswith("cli/")} == {"cli/completion"}


@pytest.mark.parametrize("rule", [wrong_arrow, wrong_library, impurity], ids=lambda rule: rule.__name__)
def test_imports_follow_the_table(rule):
    """They point down, a library has one home, and pure rooms touch nothing."""
    assert mistakes(rule) == []


def test_what_the_table_forbids_is_found():
    assert wrong_arrow("core", "mpicoloc.profile.page")
    assert not wrong_arrow("profile", "mpicoloc.core.profile")
    assert wrong_library("core", "h5py") and wrong_library("core", "scipy.stats")
    assert not wrong_library("core", "numpy")
    assert impurity("measure", "time") and not impurity("slurm", "time")


def test_wrap_starts_quickly():
    """No import of wrap's is one that every rank would wait for."""
    code = "import sys; import mpicoloc.wrap; print(*sys.modules)"
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30, cwd=PACKAGE.parent)
    slow = "numpy h5py pandas mpi4py cffi dataclasses inspect subprocess argparse shutil"
    assert not set(slow.split()) & set(done.stdout.split())
