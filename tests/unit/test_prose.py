"""The check of prose finds what its rules forbid, and nothing in code; the package's docstrings pass it."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("proselint", reason="the extra docs is not installed")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def prose():
    spec = importlib.util.spec_from_file_location("prose", ROOT / ".ci" / "prose.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.CheckRegistry().register_many(module.__register__)
    return module


@pytest.mark.parametrize(
    ("name", "text", "line", "words"),
    [
        ("a.md", "# Pages\n\n## What it does\n", 3, "'## What it does'"),
        ("a.md", "## How do I start?\n", 1, "only headings in docs/howto"),
        ("a.md", "One.\n\nThe job\nwas told so.\n", 4, "'told'"),
        ("a.md", "The behavior.\n", 1, "'behavior'"),
        ("a.md", "It is the\nthe last.\n", 1, "twice"),
        ("a.md", "It is very slow.\n", 1, "weasel_words.very"),
        ("a.py", 'def f():\n    """What it returns."""\n', 2, "'What'"),
        ("a.py", 'X = 1\n"""Its color."""\n', 2, "'color'"),
    ],
)
def test_what_a_rule_forbids_is_found_in_its_line(prose, tmp_path, name, text, line, words):
    path = tmp_path / name
    path.write_text(text)
    (found,) = prose.findings(path)
    assert found.startswith(f"{path}:{line}: ") and words in found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.md", "```\n# What it does\ncolor\n```\n\nThe key `color` and [it](http://color.org/).\n"),
        ("howto/a.md", "## How do I start?\n"),
        ("CHANGELOG.md", "# Log\n\n## [2]\n\nNew.\n\n## [1]\n\nThe user was told.\n"),
        ("a.py", '# What it was told\ncolor = "What color"\n'),
    ],
)
def test_code_questions_of_howtos_and_old_sections_pass(prose, tmp_path, name, text):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    assert not list(prose.findings(path))


def test_docstrings_of_the_package_pass(prose):
    files = list((ROOT / "mpicoloc").rglob("*.py"))
    assert len(files) > 200 and any(prose.passages(file) for file in files)
    assert not [found for file in files for found in prose.findings(file)]
