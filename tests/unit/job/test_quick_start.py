"""A job's own processes start Python with the right libraries and ignore files in the job's folder."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from node_parts import WRITE, packed

from mpicoloc.job import quick_start, wrap
from mpicoloc.profile import hdf5

LIMIT_S = 60
ROOT = str(Path(__file__).resolve().parents[3])
MODULE = """
import sys
import numpy, h5py

def main():
    print(*sys.argv, sys.prefix, "site" in sys.modules, sys.flags.no_site)
    return 7
"""


@pytest.fixture
def folder(tmp_path):
    """A job's folder with files that are called like libraries, and one to run."""
    for name in ("numpy", "random", "site"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('a file of the job')\n")
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "told.py").write_text(MODULE)
    return tmp_path


def run(command, folder):
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "path")},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


def test_a_module_is_run_with_its_arguments_and_its_exit_code(folder):
    said = run([*wrap.quick_module("told"), "a", "b c"], folder)
    assert said.stderr == ""
    assert said.stdout.split()[:4] == ["told", "a", "b", "c"]
    assert said.stdout.split()[4] == sys.prefix
    assert said.returncode == 7


def test_where_the_libraries_lie_apart_site_finds_them(folder):
    code = (
        f"import sys; sys.path.append({ROOT!r}); from mpicoloc.job import quick_start; "
        "quick_start.LIBRARIES = ('no such library',); sys.argv = ['-', 'told']; quick_start.main()"
    )
    said = run([sys.executable, "-S", "-P", "-c", code], folder)
    assert said.stderr == ""
    assert said.stdout.split() == ["told", sys.prefix, "True", "1"]
    assert said.returncode == 7


def test_an_error_of_the_module_is_told(folder):
    (folder / "path" / "broken.py").write_text("def main():\n    raise ValueError('broken')\n")
    said = run(wrap.quick_module("broken"), folder)
    assert "ValueError: broken" in said.stderr and said.returncode == 1


SITE_PRICING = """
import sys
from mpicoloc.bill import pricings

def main():
    assert sys.flags.no_site
    print(pricings.find(sys.argv[1])(1.0, 1.0, 2.0))
    return 0
"""


@pytest.mark.parametrize("name", ["dear", "dear_prices:rate"])
def test_prices_of_a_package_that_only_site_finds(folder, name):
    """As one that `pip install -e` or `pip install --user` has installed."""
    (folder / "path" / "priced.py").write_text(SITE_PRICING)
    prices = folder / "elsewhere"
    (prices / "dear_prices-1.dist-info").mkdir(parents=True)
    (prices / "dear_prices.py").write_text("def rate(rate_su, t_solo_s, t_corun_s):\n    return 77.0\n")
    (prices / "dear_prices-1.dist-info" / "METADATA").write_text("Name: dear_prices\nVersion: 1\n")
    points = "[mpicoloc.pricings]\ndear = dear_prices:rate\n"
    (prices / "dear_prices-1.dist-info" / "entry_points.txt").write_text(points)
    venv.create(folder / "venv", symlinks=True)
    (packages,) = (folder / "venv").glob("lib/python*/site-packages")
    for library in quick_start.LIBRARIES:  # none is imported here
        (packages / library).mkdir()
    (packages / "prices.pth").write_text(f"{prices}\n")
    said = run([folder / "venv" / "bin" / "python", *wrap.quick_module("priced")[1:], name], folder)
    assert (said.stderr, said.stdout) == ("", "77.0\n")


def test_the_end_of_a_job_imports_only_what_it_needs(tmp_path):
    """A job waits in MPI_Finalize for these imports."""
    out = tmp_path / "job.h5"
    said = subprocess.run(
        [sys.executable, "-c", WRITE, packed(tmp_path)], capture_output=True, text=True, timeout=LIMIT_S
    )
    assert said.stderr == "" and hdf5.read(out).interference.slowdown.value == 1.0
    slow = {"scipy", "pandas", "sqlalchemy", "numpy.ma", "numpy.random", "mpicoloc.network", "argparse"}
    assert not slow & set(said.stdout.split())
