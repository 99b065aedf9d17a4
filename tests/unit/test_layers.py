"""The arrows of the design: imports point down only."""

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "mpicoloc"
BASE = {"errors", "config", "record", "pricings", "counters", "extras"}
ALLOWED = {
    "errors": set(),
    "config": {"errors", "record", "pricings", "counters"},
    "record": set(),
    "counters": {"record"},
    "regions": set(),
    "quick_start": set(),
    "pricings": {"errors"},
    "extras": {"errors"},
    "paths": BASE,
    "elf": BASE,
    "launch_env": BASE,
    "target": BASE | {"elf", "paths"},
    "wrap": BASE | {"elf", "paths", "launch_env", "target"},
    "core": BASE,
    "network": BASE | {"core"},
    "lab": BASE | {"core", "network"},
    "model": BASE | {"core", "network"},
    "sim": BASE | {"core", "network", "model"},
    "store": BASE | {"core", "elf"},
    "pmpi": BASE | {"core", "paths"},
    "run": BASE | {"core", "network", "model", "store", "pmpi", "elf", "paths", "target", "launch_env"},
    "report": BASE | {"core", "network", "model", "store"},
}
LIBRARIES = {
    "core": {"numpy"},
    "network": {"numpy", "yaml"},
    "model": {"numpy", "scipy", "sklearn", "optuna", "threadpoolctl", "rustworkx"},
    "sim": {"numpy"},
    "store": {"numpy", "h5py", "pandas", "sqlite3", "sqlalchemy"},
    "pmpi": {"numpy", "cffi", "pycparser"},
    "lab": {"numpy"},
    "run": {"numpy", "mpi4py"},
    "report": {"numpy", "rich", "matplotlib", "jinja2", "markupsafe"},
}
ONE_HOME = {
    "h5py": "store",
    "pandas": "store",
    "sqlite3": "store",
    "sqlalchemy": "store",
    "cffi": "pmpi",
    "mpi4py": "run",
    "sklearn": "model",
    "optuna": "model",
    "matplotlib": "report",
    "pyarrow": "report",
    "otf2": "report",
}
TOP = {path.stem for path in PACKAGE.glob("*.py")} | {
    path.name for path in PACKAGE.iterdir() if path.is_dir()
}
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__main__.py")


def layer_of(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return parts[0] if parts != ("__init__",) else None


def imported(path):
    """Every module that a file names in an import statement, and in importlib.import_module("...")."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path):
    layer = layer_of(path)
    for name in imported(path):
        words = name.split(".")
        if words[0] == "mpicoloc" and len(words) > 1 and words[1] in TOP and layer not in ("cli", None):
            below = words[1]
            assert below == layer or below in ALLOWED[layer], f"{layer} must not import {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_libraries_have_one_home(path):
    layer = layer_of(path)
    for name in imported(path):
        library = name.split(".")[0]
        if library in ONE_HOME:
            assert layer == ONE_HOME[library], f"{library} belongs to {ONE_HOME[library]}, not to {layer}"
        elif layer in ALLOWED and library != "mpicoloc" and library != "__future__":
            allowed = library in sys.stdlib_module_names or library in LIBRARIES.get(layer, set())
            assert allowed, f"{layer} must not import {library}"


@pytest.mark.parametrize("layer", ["core", "network", "model", "sim"])
def test_calculating_layers_are_pure(layer):
    forbidden = {"os", "time", "random", "subprocess", "socket", "pathlib", "tempfile"}
    if layer == "core":
        forbidden = {"subprocess", "socket", "random"}
    for path in (PACKAGE / layer).rglob("*.py"):
        found = {name.split(".")[0] for name in imported(path)} & forbidden
        assert not found, f"{path} uses {found}: no file, clock or global random state here"


def test_wrap_starts_quickly():
    """No import of wrap's is one that every rank would wait for."""
    import subprocess

    code = "import sys; import mpicoloc.wrap; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
        cwd=PACKAGE.parent,
    )
    slow = {
        "numpy",
        "h5py",
        "pandas",
        "mpi4py",
        "cffi",
        "dataclasses",
        "inspect",
        "subprocess",
        "argparse",
        "shutil",
    }
    assert not slow & set(result.stdout.split())
