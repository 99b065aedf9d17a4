"""The documentation builds without a warning, and what it says about the code is written from the code."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mpicoloc import config
from mpicoloc.core import profile

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 600


@pytest.fixture(scope="module")
def generated():
    sys.path.insert(0, str(ROOT / "docs" / "_ext"))
    import generated

    yield generated.pages()
    sys.path.remove(str(ROOT / "docs" / "_ext"))


@pytest.mark.timeout(LIMIT_S)
def test_docs_build_without_warnings(tmp_path):
    pytest.importorskip("sphinx", reason="the extra docs is not installed")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-b",
        "html",
        "-d",
        str(tmp_path / "tree"),
    ]
    done = subprocess.run(
        [*command, str(ROOT / "docs"), str(tmp_path / "html")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "html" / "index.html").exists()
    command[command.index("html")] = "man"
    subprocess.run([*command, str(ROOT / "docs"), str(tmp_path / "man")], check=True)
    page = (tmp_path / "man" / "mpicoloc-ledger.1").read_text()
    assert "MPICOLOC LEDGER CHARGE" in page and "examples:" in page


def test_every_option_is_in_the_reference(generated):
    for option in config.OPTIONS:
        assert f"`{option.flag}`" in generated["options"]
        assert f"`{option.env}`" in generated["options"]


def test_every_verb_has_its_help(generated):
    from mpicoloc.cli import main

    for verb in main.VERBS:
        assert f"(cli/{verb}.md)" in generated["cli"]
        assert f"usage: mpicoloc {verb}" in generated[f"cli/{verb}"]
    assert "## mpicoloc ledger charge\n" in generated["cli/ledger"]


def test_every_column_is_in_the_reference(generated):
    for name, columns in profile.COLUMNS.items():
        assert f"### /{name}\n" in generated["profile"]
        for column in columns:
            assert column.meaning.replace("|", "\\|") in generated["profile"]


def test_links_lead_to_files_of_a_fresh_clone():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("no git checkout")
    files = {Path(name) for name in listed.stdout.split("\0") if name}
    there = {ROOT / name for file in files for name in (file, *file.parents)}
    dead = [
        f"{page}: {link}"
        for page in files
        if page.suffix == ".md"
        for link in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", (ROOT / page).read_text())
        if (ROOT / page.parent / link).resolve() not in there
    ]
    assert not dead


def test_every_feature_is_in_the_reference(generated):
    from mpicoloc.pairing import features

    for quantity in features.QUANTITIES:
        assert f"`{quantity.name}`" in generated["features"]
