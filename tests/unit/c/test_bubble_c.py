"""The memory hog under the sanitizers: addresses, undefined behaviour, leaks."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import objects
import once
import pytest
from c_tests import build, run

from mpicoloc.bubble import calibrate
from mpicoloc.pmpi import build_shim

CANNOT = 77
"""Exit code where others have the processors."""
LIBRARY = tuple(build_shim.c_files(objects.CSRC, (build_shim.HOG,)))


def test_the_bubble_keeps_its_limits_and_ends_when_told(tmp_path_factory, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    run(build(tmp_path_factory, "test_bubble", LIBRARY, objects.SANITIZED), tmp_path)


@pytest.mark.serial  # its threads run only while nothing else wants the processors
@pytest.mark.parametrize("flags", [objects.SANITIZED, (*objects.FLAGS, "-fsanitize=thread")])
@pytest.mark.parametrize(
    ("name", "included"), [("test_bubbling", ""), ("test_pressing", ""), ("test_bubbles_on_nodes", "step.c")]
)
def test_bubbles_in_shutters_press_and_end(tmp_path_factory, tmp_path, monkeypatch, name, included, flags):
    monkeypatch.chdir(tmp_path)
    files = [objects.of_tests(name), *(path for path in objects.AGENT if path.name != included)]
    folder, link = once.folder(tmp_path_factory) / "objects", ("-lm", "-lpthread", "-ldl")
    program = objects.program(tmp_path / name, files, flags, folder, link=link)
    # The thread sanitizer of older compilers needs addresses that are not random.
    command = ["setarch", "-R", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    if done.returncode == CANNOT:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr


@pytest.mark.serial
@pytest.mark.parametrize("scenario", ["pressing", "together", "not_asked", "refusing", "no_offer", "killed"])
def test_an_agent_presses_for_a_job_that_asks(tmp_path_factory, tmp_path, monkeypatch, scenario):
    monkeypatch.chdir(tmp_path)
    shm = tmp_path / "shm"
    shm.mkdir()
    program = build(tmp_path_factory, "test_asking", (*objects.AGENT, *objects.RECORDER), objects.SANITIZED)
    run(program, shm, scenario)


def hog_program(folder, statements):
    """A program with the memory hog's library, which runs these statements."""
    source, program = folder / "program.c", folder / "program"
    source.write_text(f'#include "bubble/bubble.h"\n#include <stdio.h>\nint main(void) {{ {statements} }}\n')
    hog = build_shim.c_files(objects.CSRC, (build_shim.HOG,))
    command = ["cc", *objects.FLAGS, f"-I{objects.CSRC}", source, *hog, "-o", program]
    subprocess.run(command, check=True, timeout=60)
    return program


def printed(command):
    return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()


def test_both_halves_look_for_the_calibration_in_one_place(tmp_path, monkeypatch):
    program = hog_program(
        tmp_path, "char path[4096]; mc_bubble_calibration_path(path, sizeof path); puts(path);"
    )
    for cache in (str(tmp_path), ""):
        monkeypatch.setenv("XDG_CACHE_HOME", cache)
        assert printed([program]) == calibrate.default_path()


@pytest.fixture
def memory_group():
    """A control group with a limit of 64 MiB, of either version, and one without a limit inside it."""
    for root, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        outer = Path(root) / f"mpicoloc-test-{os.getpid()}"
        inner = outer / "inner"
        try:
            outer.mkdir()  # not its parents: that would be a group of another version
            inner.mkdir()
            (outer / limit).write_text(str(64 << 20))
            subprocess.run(["sh", "-c", f"echo $$ >{inner}/cgroup.procs"], check=True, timeout=10)
            yield inner
            return
        except (OSError, subprocess.CalledProcessError):
            continue
        finally:
            for group in filter(Path.exists, (inner, outer)):
                group.rmdir()
    pytest.skip("no limit of memory can be set here")


def test_free_memory_is_what_the_jobs_limit_leaves(tmp_path, memory_group):
    program = hog_program(tmp_path, 'printf("%lu", mc_bubble_free_bytes());')
    assert int(printed([program])) > 64 << 20
    inside = ["sh", "-c", f'echo $$ >{memory_group}/cgroup.procs; exec "{program}"']
    assert 0 < int(printed(inside)) <= 64 << 20
