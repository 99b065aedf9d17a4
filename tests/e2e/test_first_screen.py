"""README's first screen, copied line by line into a shell in a fresh clone."""

import os
import subprocess

import pytest
from pages import ROOT, blocks


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a clone")
def test_the_first_screen_works_in_a_fresh_clone(tmp_path, shm_dir):
    page = ROOT / "README.md"
    text = page.read_text()
    screen = text[: text.index("## Your own program")]
    lines = [
        line.removeprefix("$ ")
        for block in blocks(page)
        if block["text"] in screen and block["kind"] == "console"
        for line in block["text"].splitlines()
    ]
    assert lines[:2] == ["launch/demo", ". .venv/bin/activate"]
    subprocess.run(["git", "clone", "-q", ROOT, tmp_path / "clone"], check=True, timeout=60)
    env = {name: os.environ[name] for name in ("HOME", "PATH", "MPICOLOC_SHM_DIR") if name in os.environ}
    env["MPICOLOC_LEDGER"] = str(tmp_path / "books.sqlite")
    script = "\n".join(
        ["set -e", *lines[:-1], f"{lines[-1]} || [ $? = 1 ]"]
    )  # check has remarks on this machine
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path / "clone", env=env, capture_output=True, text=True, timeout=1700
    )
    assert lines[-1] == "mpicoloc check"
    assert done.returncode == 0, done.stdout + done.stderr
    for words in ("heat2d  (memory-bound", "charged", "page.html"):
        assert words in done.stdout + done.stderr
    assert (tmp_path / "clone" / "page.html").exists()
