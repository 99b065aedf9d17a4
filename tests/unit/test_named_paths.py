"""Every file and module that a page, a docstring or a comment names is there."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOP = "mpicoloc|csrc|tests|benchmarks|docs|examples|launch|packaging|\\.ci"
FILE = re.compile(
    rf"(?<![\w./<>-])((?:{TOP})/[\w./-]*\w\.(?:py|c|h|md|toml|sh|json|html|f90|cpp))\b(?![/*<{{])"
)
SHORT_FILE = re.compile(r"`([a-z_]+(?:/[a-z_]+)*\.(?:py|[ch]))`")
MODULE = re.compile(r"`+(mpicoloc(?:\.[a-z_0-9]+)+)[`(.]")
SHORT_MODULE = re.compile(r"`((?:[a-z_]+\.)+[A-Za-z_]+)(?:\(.*?\))?`")
MADE = re.compile(
    r"_gen\.[ch]$|^mpif?\.h$|^linux/|^docs/_build/|^docs/generated/|mpicoloc/_lib/|csrc/options_gen|^tests/made/"
)
"""Files that a build makes, and headers of the system."""


def tracked():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


try:
    FILES = tracked()
except (OSError, subprocess.CalledProcessError):  # an unpacked source archive
    FILES = []
pytestmark = pytest.mark.skipif(not FILES, reason="no git checkout")
TEXTS = [
    name
    for name in FILES
    if name.endswith((".py", ".c", ".h", ".md", ".toml", ".sh", ".yaml"))
    or name.startswith(("launch/", ".ci/"))
    if name != "CHANGELOG.md"
]
PACKAGES = {path.parent.name for path in (ROOT / "mpicoloc").glob("*/__init__.py")}


def names_in(module):
    """Names that a module defines or imports, and the fields and methods of its classes."""
    found = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).split(".")[0])
    return found


def is_module(dotted):
    """Whether words below the package name a folder, a file, or something in a file."""
    words = dotted.split(".")
    for n in range(len(words), -1, -1):
        base = ROOT.joinpath("mpicoloc", *words[:n])
        if (base / "__init__.py").exists() and base.is_dir():
            return n == len(words) or words[n] in names_in(base / "__init__.py")
        if base.with_suffix(".py").exists() and n:
            return n == len(words) or words[n] in names_in(base.with_suffix(".py"))
    return False


def missing_in(name):
    text = (ROOT / name).read_text()
    for path in FILE.findall(text):
        if not MADE.search(path) and not (ROOT / path).exists():
            yield path
    if name.startswith(("mpicoloc/", "csrc/", "docs/")):
        for path in SHORT_FILE.findall(text):
            if not any(one == path or one.endswith(f"/{path}") for one in FILES) and not MADE.search(path):
                yield path
    for dotted in MODULE.findall(text):
        if not is_module(dotted.removeprefix("mpicoloc.")) and dotted.split(".")[1] in PACKAGES:
            yield dotted
    if name.startswith("mpicoloc/"):
        for dotted in SHORT_MODULE.findall(text):
            if dotted.split(".")[0] in PACKAGES and not dotted.endswith(".conf") and not is_module(dotted):
                yield dotted


@pytest.mark.parametrize("folder", sorted({name.split("/")[0] for name in TEXTS}))
def test_what_texts_name_is_there(folder):
    found = {f"{name}: {what}" for name in TEXTS if name.split("/")[0] == folder for what in missing_in(name)}
    assert not sorted(found)
