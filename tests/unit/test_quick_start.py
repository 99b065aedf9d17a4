"""How a job's own processes start Python: with the right libraries, and without files of the job's folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import sample
import test_parts

from mpicoloc import quick_start, wrap
from mpicoloc.core.tables import table
from mpicoloc.run.part import NodePart, pack
from mpicoloc.store import hdf5

LIMIT_S = 60
ROOT = str(Path(quick_start.__file__).parents[1])
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
        f"import sys; sys.path.append({ROOT!r}); from mpicoloc import quick_start; "
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


WRITE = """
import sys
from mpicoloc.run import assemble
from mpicoloc.run.part import unpack
assemble.write([unpack(open(sys.argv[1], "rb").read())])
print(*sys.modules)
"""


def test_the_end_of_a_job_imports_only_what_it_needs(tmp_path):
    """A job waits in MPI_Finalize for these imports."""
    found, out = {**sample.tables(shared_s=0.0), "cycles": table("cycles")}, tmp_path / "job.h5"
    part = test_parts.part(n_ranks=2, n_nodes=1, out=out, not_finalized=[])
    packed = tmp_path / "packed"
    packed.write_bytes(b"".join(pack(NodePart({**part.tables, **found}, part.facts))))
    said = subprocess.run(
        [sys.executable, "-c", WRITE, str(packed)], capture_output=True, text=True, timeout=LIMIT_S
    )
    assert said.stderr == "" and hdf5.read(out).interference.slowdown.value == 1.0
    slow = {"scipy", "pandas", "sqlalchemy", "numpy.ma", "numpy.random", "mpicoloc.network", "argparse"}
    assert not slow & set(said.stdout.split())
