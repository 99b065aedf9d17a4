"""The meter count without MPI: code of ranks is changed while they run it, under the sanitizers."""

import os
import shutil
import subprocess

import objects
import once
import pytest

from mpicoloc.pmpi import build_shim

CORE = (*objects.AGENT, *objects.RECORDER)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    capstone = build_shim.find_capstone()
    assert capstone is not None, "the extra `test` brings the wheel"
    folder = tmp_path_factory.mktemp("count")
    shutil.copy(capstone.library, folder)
    shared = once.folder(tmp_path_factory) / "objects"
    files = [objects.of_tests("test_count"), *CORE]
    return objects.program(
        folder / "test_count", files, objects.SANITIZED, shared, {"decoder.c": capstone.flags}
    )


def _run(program, folder, *words):
    environment = {name: text for name, text in os.environ.items() if not name.startswith("MPICOLOC_")}
    environment["MPICOLOC_SHM_DIR"] = str(folder)
    done = subprocess.run(
        [program, *words], env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not list(folder.iterdir())


SCENARIOS = (
    "near",
    "choice",
    "outer",
    "exact",
    "threads",
    "fork",
    "unlike",
    "storm",
    "forbidden",
    "stopped",
    "waiting",
    "taken_page",
)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_code_is_changed_and_put_back(program, tmp_path, scenario):
    _run(program, tmp_path, scenario)


@pytest.mark.parametrize("scenario", ["lease", "lease_asleep", "lease_in_call"])
def test_a_rank_takes_back_what_a_dead_agent_has_left(program, tmp_path, scenario):
    _run(program, tmp_path, scenario)


def test_jumps_that_cannot_be_taken_back_are_kept_and_tried_again(program, tmp_path):
    _run(program, tmp_path, "kept")


def test_code_that_is_not_as_in_its_file_is_left_alone(program, tmp_path):
    _run(program, tmp_path, "differs")


@pytest.mark.parametrize("scenario", ["reader", "reader_taken"])
def test_a_rank_names_the_agent_as_its_reader_unless_the_program_has_named_one(program, tmp_path, scenario):
    _run(program, tmp_path, scenario)


@pytest.mark.parametrize("scenario", ["no_time", "busy"])
def test_the_search_waits_for_time_and_for_ranks(program, tmp_path, scenario):
    _run(program, tmp_path, scenario)


# Edges of windows have to be in time for "hot": on a processor of five processes none of 40 was.
@pytest.mark.parametrize("scenario", [pytest.param("hot", marks=pytest.mark.serial), "thin"])
def test_places_that_turn_hot_are_not_counted_again(program, tmp_path, scenario):
    _run(program, tmp_path, scenario)


def _library(path, *words):
    source = path.with_suffix(".c")
    source.write_text("int one(void) { return 1; }\n")
    command = [*objects.compiler(), "-shared", "-fPIC", "-o", str(path), str(source), *words]
    subprocess.run(command, check=True, timeout=60)
    return str(path)


def test_files_of_languages_that_unwind_from_anywhere_are_left_alone(program, tmp_path):
    folder = tmp_path / "files"
    shared = tmp_path / "shm"
    folder.mkdir()
    shared.mkdir()
    plain = _library(folder / "plain.so")
    runtime = _library(folder / "libgnat-12.so", "-Wl,-soname,libgnat-12.so")
    needs = _library(folder / "needs.so", "-Wl,--no-as-needed", runtime)
    go = str(folder / "go.so")
    subprocess.run(["objcopy", "--add-section", f".gopclntab={plain}", plain, go], check=True, timeout=60)
    _run(program, shared, "exempt", plain, runtime, needs, go)


@pytest.mark.serial
def test_two_jobs_count_around_their_shutters(program, tmp_path):
    _run(program, tmp_path, "jobs")
