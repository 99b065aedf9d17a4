"""The blocks of the documentation's pages, and how a test runs them.

Before each block stands a comment. ``<!-- test [: [needs PROGRAM] [exit=any] [shorten=A:B,...]] -->`` runs it
in order with the other blocks of its page, as if typed into one shell
(PROGRAM may be "lab" or "slurm": that this machine lets us make one);
``<!-- not tested: REASON -->`` does not. `shorten` replaces numbers of long runs by small ones.
"""

import contextlib
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import nodes
import pytest

from mpicoloc.lab import slurm_cluster

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(?:<!-- (?P<mark>[^\n]*?) -->\n)?```(?P<kind>console|python)\n(?P<text>.*?)```", re.S)
LAB = f"docs-{os.getpid()}"
"""Lab name in the tests of pages: the user may have a lab of the default name."""


def blocks(page):
    return [match.groupdict() for match in BLOCK.finditer(page.read_text())]


def marked(page):
    return [block for block in blocks(page) if (block["mark"] or "").startswith("test")]


def missing(block):
    """Needs of a block that are not met, by name."""
    return [name for name in re.findall(r"needs (\S+)", block["mark"]) if not is_there(name)]


def is_there(name):
    """Whether a block's need is met: a program, a package, or that a lab can be made."""
    if name == "lab":
        return nodes.can_be_made()
    if name == "slurm":
        return os.geteuid() == 0 and all(map(shutil.which, slurm_cluster.TOOLS))
    # mpicc.openmpi is a program, and no module of a package mpicc
    is_module = name.isidentifier() and importlib.util.find_spec(name) is not None
    return is_module or shutil.which(name) is not None


class Shell:
    """State shared by the blocks of one page: a folder, and the variables that they export."""

    def __init__(self, folder):
        self.folder, self.exported = folder, {}
        self.file = Path(folder, ".exported")

    def run(self, block, limit_s=240):
        """Run one block and return its output; its exit code must be 0 unless the mark has `exit=any`."""
        env = {**os.environ, **self.exported}
        if "needs slurm" in block["mark"]:
            env.pop("MPICOLOC_SHM_DIR", None)  # each node has a /dev/shm of its own
        done = subprocess.Popen(
            self._command(block),
            cwd=self.folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            said, complaints = done.communicate(timeout=limit_s)
        finally:
            if done.poll() != 0:  # what it began in the background would stay
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(done.pid, signal.SIGKILL)
        if "exit=any" not in block["mark"]:
            assert done.returncode == 0, f"{block['text']}\n{said}\n{complaints}"
        assert "Traceback" not in complaints
        self._take_exports(env)
        return said

    def _command(self, block):
        if block["kind"] == "python":
            return [sys.executable, "-c", block["text"]]
        text = block["text"].replace("\\\n", " ")
        lines = [line[2:] for line in text.splitlines() if line.startswith("$ ")]
        if os.geteuid() == 0:
            lines = [line.removeprefix("sudo ") for line in lines]
        lines = [re.sub(r"\bmpicoloc lab (\w+)", rf"\g<0> --name {LAB}", line) for line in lines]
        lines = [re.sub(r"\bmpicoloc slurm (up|env|down)", rf"\g<0> --name {LAB}", line) for line in lines]
        text = shortened("\n".join(lines), block["mark"])
        return ["bash", "-e", "-c", f"{text}\nenv -0 > {shlex.quote(str(self.file))}"]

    def _take_exports(self, given):
        if not self.file.exists():  # Python, or a block that failed as it may
            return
        now = dict(entry.split("=", 1) for entry in self.file.read_text().split("\0") if "=" in entry)
        self.file.unlink()
        of_bash = ("_", "SHLVL", "PWD", "OLDPWD")
        self.exported |= {
            name: text for name, text in now.items() if given.get(name) != text and name not in of_bash
        }


def of_cluster(page, folder):
    """Blocks of a page that begins a cluster, its last one, which ends it, and their shell in that folder."""
    *first, last = marked(page)
    assert "slurm down" in last["text"]
    if lacking := {name for block in first for name in missing(block)}:
        pytest.skip(f"not there: {', '.join(sorted(lacking))}")
    (folder / "examples").symlink_to(ROOT / "examples")
    shell = Shell(folder)
    shell.exported |= {f"XDG_{kind}_HOME": str(folder / kind) for kind in ("CACHE", "DATA")}
    shell.exported["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return first, last, shell


def shortened(text, mark):
    for pair in re.findall(r"\d+:\d+", mark):
        long, short = pair.split(":")
        assert re.search(rf"\b{long}\b", text), f"{long} is not in the block"
        text = re.sub(rf"\b{long}\b", short, text)
    return text
