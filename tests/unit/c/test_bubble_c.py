"""The memory hog under the sanitizers: addresses, undefined behaviour, leaks."""

from __future__ import annotations

import subprocess

import objects
import once
import pytest
from c_tests import build, run

from mpicoloc.bubble import calibration_file
from mpicoloc.pmpi import sources

LIBRARY = tuple(sources.c_files(objects.CSRC, (sources.HOG,)))


def test_the_bubble_keeps_its_limits_and_ends_when_told(tmp_path_factory, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    run(build(tmp_path_factory, "test_bubble", LIBRARY, objects.SANITIZED), tmp_path)


@pytest.mark.serial  # its threads run only while nothing else wants the processors
@pytest.mark.parametrize("flags", [objects.SANITIZED, (*objects.FLAGS, "-fsanitize=thread")])
def test_bubbles_in_shutters_press_and_end(tmp_path_factory, tmp_path, monkeypatch, flags):
    monkeypatch.chdir(tmp_path)
    files = [objects.of_tests("test_bubbling"), *objects.AGENT]
    folder, link = once.folder(tmp_path_factory) / "objects", ("-lm", "-lpthread", "-ldl")
    program = objects.program(tmp_path / "test_bubbling", files, flags, folder, link=link)
    # The thread sanitizer of older compilers needs addresses that are not random.
    command = ["setarch", "-R", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.serial
@pytest.mark.parametrize("scenario", ["pressing", "not_asked", "refusing", "no_offer", "killed"])
def test_an_agent_presses_for_a_job_that_asks(tmp_path_factory, tmp_path, monkeypatch, scenario):
    monkeypatch.chdir(tmp_path)
    shm = tmp_path / "shm"
    shm.mkdir()
    program = build(tmp_path_factory, "test_asking", (*objects.AGENT, *objects.RECORDER), objects.SANITIZED)
    run(program, shm, scenario)


def test_both_halves_look_for_the_calibration_in_one_place(tmp_path, monkeypatch):
    source = tmp_path / "path.c"
    source.write_text(
        '#include "bubble/bubble.h"\n#include <stdio.h>\n'
        "int main(void) { char path[4096]; mc_bubble_calibration_path(path, sizeof path); puts(path); }\n"
    )
    program = tmp_path / "path"
    hog = sources.c_files(objects.CSRC, (sources.HOG,))
    command = ["cc", *objects.FLAGS, f"-I{objects.CSRC}", source, *hog, "-o", program]
    subprocess.run(command, check=True, timeout=60)
    for cache in (str(tmp_path), ""):
        monkeypatch.setenv("XDG_CACHE_HOME", cache)
        done = subprocess.run([program], capture_output=True, text=True, timeout=10, check=True)
        assert done.stdout.strip() == calibration_file.default_path()
