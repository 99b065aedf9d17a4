"""Every command and every Python block of the documentation runs, in a folder that has the examples, a LAMMPS
input and a profile.
"""

import contextlib
import re
import subprocess
import sys

import numpy as np
import pytest
from json_output import documented, keys
from pages import LAB, ROOT, Shell, blocks, is_there, marked, missing

from mpicoloc.core.profile import Job, table
from mpicoloc.errors import MpicolocError
from mpicoloc.lab import control, slurm_cluster
from mpicoloc.profile import hdf5
from mpicoloc.profile.merge import complete
from mpicoloc.profile.summary import summary

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if not {"generated", "_build"} & set(page.parts)]
RUN_ELSEWHERE = [ROOT / "docs" / "tutorial" / name for name in ("slurm-day.md", "slurm-model.md")]
"""By tests/slurm/test_slurm_day.py and test_slurm_model.py."""
LAMMPS_INPUT = """\
units lj
lattice fcc 0.8442
region box block 0 6 0 6 0 6
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 1.44 87287
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
fix 1 all nve
run 50
"""


def example_profile():
    """A small complete profile of two ranks."""
    columns = {
        "ranks": {"rank": [0, 1], "n_cores": [1, 1], "state": ["finalized"] * 2, "wall_s": [2.0] * 2,
                  "n_calls": [10] * 2, "mpi_ns": [10**8] * 2, "comp_ns": [19 * 10**8] * 2},
        "nodes": {"hostname": ["node1"], "meter": ["burst"], "watched_s": [2.0], "cpus": ["0-1"]},
        "modules": {"path": ["/app"]},
        "call_sites": {"rank": [0, 1], "i_site": [1, 1], "call": ["MPI_Allreduce"] * 2, "n": [10] * 2},
        "peers": {"src": [0], "dst": [1], "size_class": [4], "n": [10], "bytes": [80]},
    }  # fmt: skip
    tables = {name: table(name, values) for name, values in columns.items()}
    job = Job("1234", "app", 2, 1, 2, "an MPI library", 2.0, 1770112000.0)
    return complete(job, tables, rng=np.random.default_rng(0))


@pytest.fixture
def sandbox(tmp_path, shm_dir, monkeypatch):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "in.lj").write_text(LAMMPS_INPUT)
    (tmp_path / "build" / "demo").mkdir(parents=True)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    for name in ("mpicoloc-1234.h5", "build/demo/heat2d.h5"):
        hdf5.write(example_profile(), tmp_path / name)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    with contextlib.suppress(MpicolocError):
        control.stop(LAB)
    if is_there("slurm"):
        slurm_cluster.stop(LAB)


def test_every_block_says_whether_it_is_marked():
    without = [
        f"{page.relative_to(ROOT)}:\n{block['text']}"
        for page in PAGES
        for block in blocks(page)
        if not re.match(r"test\b|not tested: \w", block["mark"] or "")
    ]
    assert not without, "no mark before:\n" + "\n".join(without)


@pytest.mark.e2e
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", [page for page in PAGES if marked(page) and page not in RUN_ELSEWHERE],
                         ids=lambda page: str(page.relative_to(ROOT)))  # fmt: skip
def test_commands_of_a_page(page, sandbox):
    prepare_programs(page, sandbox)
    shell, skipped = Shell(sandbox), []
    for block in marked(page):
        if lacking := missing(block):
            skipped += lacking
            continue
        shell.run(block)
    if skipped:
        pytest.skip(f"not installed: {', '.join(sorted(set(skipped)))}; the page's other blocks passed")


def prepare_programs(page, folder):
    """Programs that a page uses without saying how they were compiled."""
    text = page.read_text()
    for name in ("heat2d", "nbody"):
        if f"./{name}" in text and f"-o {name} " not in text:
            source = ROOT / "examples" / f"{name}.c"
            subprocess.run(["mpicc", "-O2", "-o", folder / name, source, "-lm"], check=True, timeout=60)


def test_show_prints_the_documented_keys():
    found = summary(example_profile())
    found["interference"]["co_runners"] = [
        {"id": "other", "overlap_s": 1.0, "slowdown": dict.fromkeys(("value", "low", "high"))}
    ]
    found["interference"]["meters"] = {"burst": {"value": 1.1, "low": 1.0, "high": 1.2, "n": 40}}
    assert keys(documented("show")) == keys(found)
