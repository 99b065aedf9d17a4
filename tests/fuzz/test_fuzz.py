"""Whatever parses foreign bytes in C, fed with damaged ones under the sanitizers."""

import os
import subprocess
from pathlib import Path

import fuzz_lab
import once
import pytest

from mpicoloc.pmpi import build_shim

N_RUNS = {"board": 5000, "segment": 5000, "keeper": 2000, "text": 10000, "object": 30000, "regions": 20000,
          "spank": 20000, "relocate": 10000}  # fmt: skip


def skip_without_headers(name):
    if name == "spank" and not Path("/usr/include/slurm/spank.h").exists():
        pytest.skip("no headers of Slurm here")
    if name == "relocate" and build_shim.find_capstone() is None:
        pytest.skip("no wheel capstone here")


@pytest.mark.parametrize("name", sorted(fuzz_lab.LINKED))
def test_fuzzers_compile_with_the_sources_that_they_include(name, tmp_path):
    skip_without_headers(name)
    fuzz_lab.check_syntax(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(fuzz_lab.LINKED))
def test_damaged_input_harms_nothing(name, tmp_path, tmp_path_factory, shm_dir):
    clang = fuzz_lab.find_compiler()
    if clang is None:
        pytest.skip("no clang with libFuzzer here")
    skip_without_headers(name)
    program = fuzz_lab.build(clang, name, tmp_path, once.folder(tmp_path_factory) / "objects")
    done = subprocess.run(
        [program, f"-runs={N_RUNS[name]}", "-seed=1", "-max_len=512", f"-artifact_prefix={tmp_path}/"],
        capture_output=True,
        text=True,
        timeout=110,
        env=os.environ,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-8000:]
    assert f"Done {N_RUNS[name]} runs" in done.stderr
    assert not list(shm_dir.iterdir())
