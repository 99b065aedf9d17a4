"""The rooms of docs/explain/architecture.md: what each may import, what it alone imports, which are pure."""

import ast
import functools
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "mpicoloc"
N_FILES_MAX = 20
BASE = "errors config record pricings counters number_lists extras"
"""Files at the top of the package, which every room may import."""


@dataclass(frozen=True)
class Room:
    """One row of the picture.

    `imports` are rooms of the package, `libraries` what it may import besides the standard library, `owns`
    those that no other room imports. `is_pure`: it touches no file, process, clock or global random state.
    """

    imports: str = ""
    libraries: str = ""
    owns: str = ""
    is_pure: bool = False


_DATA = "core pmpi measure pricing network launch"
_FILES = f"{_DATA} profile trace ledger slowdown schedule"
ROOMS = {
    "errors": Room(),
    "record": Room(),
    "quick_start": Room(),
    "regions": Room(),
    "counters": Room("record"),
    "extras": Room("errors"),
    "pricings": Room("errors"),
    "number_lists": Room(""),
    "config": Room("errors record pricings counters number_lists"),
    "core": Room(BASE, libraries="numpy"),
    "launch": Room(BASE),
    "pmpi": Room(f"{BASE} core launch", libraries="numpy", owns="cffi pycparser"),
    "measure": Room(f"{BASE} core", libraries="numpy scipy", is_pure=True),
    "pricing": Room(f"{BASE} core", libraries="numpy scipy", is_pure=True),
    "network": Room(f"{BASE} core", libraries="numpy", owns="yaml", is_pure=True),
    "slowdown": Room(f"{BASE} core network", libraries="numpy scipy", is_pure=True),
    "slowdown/training": Room(
        f"{BASE} core network slowdown",
        libraries="numpy scipy",
        owns="sklearn optuna threadpoolctl",
        is_pure=True,
    ),
    "schedule": Room(
        f"{BASE} core network slowdown", libraries="numpy scipy", owns="rustworkx", is_pure=True
    ),
    "profile": Room(f"{BASE} {_DATA} trace", libraries="numpy pandas otf2", owns="h5py"),
    "trace": Room(f"{BASE} {_DATA}", libraries="numpy pandas"),
    "ledger": Room(f"{BASE} {_DATA} profile", owns="sqlalchemy"),
    "coordinator": Room(f"{BASE} {_DATA} profile trace", libraries="numpy", owns="mpi4py"),
    "checkup": Room(f"{BASE} core pmpi launch coordinator"),
    "bubble": Room(f"{BASE} {_DATA} profile trace coordinator", libraries="numpy"),
    "sweep": Room(f"{BASE} core launch coordinator"),
    "campaign": Room(f"{BASE} {_FILES} slowdown/training coordinator sweep", libraries="numpy"),
    "slurm": Room(f"{BASE} {_FILES} campaign coordinator", libraries="numpy"),
    "lab": Room(f"{BASE} {_FILES}", libraries="numpy"),
    "report": Room(
        f"{BASE} {_FILES}", libraries="numpy otf2", owns="matplotlib jinja2 markupsafe rich pyarrow"
    ),
}
DOORS = {"cli", "wrap", "__init__", "__main__"}
"""What people and programs call: they may import anything."""
OWNERS = {library: room for room, row in ROOMS.items() for library in row.owns.split()}
FILES = sorted(PACKAGE.rglob("*.py"))
IMPURE = {"os", "time", "random", "subprocess", "socket", "pathlib", "tempfile"}


def room_of(words):
    """The room of a module, which is given by its words below the package."""
    for n in (2, 1):
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
    """What is wrong with a room's import of another, or None."""
    words = name.split(".")
    if room in DOORS or words[0] != "mpicoloc":
        return None
    below = room_of(words[1:])
    is_allowed = below in (None, room) or below in ROOMS[room].imports.split()
    return None if is_allowed else f"{room} must not import {name}"


def wrong_library(room, name):
    """What is wrong with a room's import of a library, or None."""
    library = name.split(".")[0]
    if library in OWNERS:
        return None if room == OWNERS[library] else f"{library} belongs to {OWNERS[library]}, not to {room}"
    if room not in ROOMS or library in ("mpicoloc", "__future__"):
        return None
    is_allowed = library in sys.stdlib_module_names or library in ROOMS[room].libraries.split()
    return None if is_allowed else f"{room} must not import {library}"


def impurity(room, name):
    """What is wrong with a pure room's import, or None: no file, process, clock or global random state."""
    is_pure = room in ROOMS and ROOMS[room].is_pure
    return f"{room} is pure: no {name}" if is_pure and name.split(".")[0] in IMPURE else None


def mistakes(rule):
    """What a rule has against the imports of all files."""
    return [
        f"{path.relative_to(PACKAGE)}: {wrong}"
        for path in FILES
        for name in imported(path)
        if (wrong := rule(home(path), name)) is not None
    ]


def test_every_folder_is_a_room():
    """A new folder gets a row in the table, where everybody sees what it may import."""
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    files = {path.stem for path in PACKAGE.glob("*.py")}
    assert folders | files == {name for name in ROOMS if "/" not in name} | DOORS


def test_no_folder_is_too_full_to_be_read():
    full = {
        str(folder.relative_to(PACKAGE)): n
        for folder in {path.parent for path in FILES}
        if (n := len(list(folder.glob("*.py")))) > N_FILES_MAX
    }
    assert not full


@pytest.mark.parametrize("rule", [wrong_arrow, wrong_library, impurity], ids=lambda rule: rule.__name__)
def test_imports_follow_the_table(rule):
    """They point down, a library has one home, and pure rooms touch nothing."""
    assert mistakes(rule) == []


def test_what_the_table_forbids_is_found():
    assert wrong_arrow("core", "mpicoloc.report.page") and not wrong_arrow("report", "mpicoloc.core.tables")
    assert wrong_library("core", "h5py") and wrong_library("core", "scipy.stats")
    assert not wrong_library("core", "numpy")
    assert impurity("schedule", "time") and not impurity("slurm", "time")


def test_wrap_starts_quickly():
    """No import of wrap's is one that every rank would wait for."""
    code = "import sys; import mpicoloc.wrap; print(*sys.modules)"
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30, cwd=PACKAGE.parent)
    slow = "numpy h5py pandas mpi4py cffi dataclasses inspect subprocess argparse shutil"
    assert not set(slow.split()) & set(done.stdout.split())
