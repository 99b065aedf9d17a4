"""The program of `launch/demo`: two jobs share two cores, and the slowdown and price of each are printed."""

import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo.py"


@pytest.mark.e2e
@pytest.mark.timeout(110)
def test_demo_tells_both_jobs(tmp_path, shm_dir):
    command = [sys.executable, str(DEMO), "--seconds", "6", "--dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    for name, other in (("heat2d", "nbody"), ("nbody", "heat2d")):
        part = done.stdout.split(f"\n{name}  (")[1].split("\n\n")[0]
        assert f"shared with {other} for" in part
        for row in ("slowdown", "evidence", "discount", "price", "in MPI", "profile"):
            assert f"\n  {row} " in part or (row == "discount" and "not measured" in part), part
        assert (tmp_path / f"{name}.h5").exists()
    assert not list(shm_dir.glob("mpicoloc.*.seg")), "shared memory of the jobs is gone"


@pytest.mark.e2e
@pytest.mark.timeout(60)
def test_demo_says_what_is_missing(tmp_path):
    broken = tmp_path / "bin"
    broken.mkdir()
    (broken / "mpicc").write_text("#!/bin/sh\necho no such library >&2\nexit 1\n")
    (broken / "mpicc").chmod(0o755)
    code = f"""
import sys
sys.path.insert(0, {str(DEMO.parent)!r})
import demo
demo.tool = lambda name: {str(broken)!r} + "/" + name
sys.exit(demo.main(["--dir", {str(tmp_path)!r}]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert done.returncode == 1
    assert done.stderr.startswith("demo: ") and "no such library" in done.stderr
    assert "Traceback" not in done.stderr
