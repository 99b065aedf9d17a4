"""The C half without MPI: make-believe jobs share a board in a folder of their own, under the sanitizers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import objects
import once
import pytest

# Ranks that only compute, and what is said of their time: nothing else may want the processors.
measures_time = pytest.mark.serial

ROOT = Path(__file__).resolve().parents[3]
CORE = (*objects.AGENT, *objects.RECORDER)
# Software events stand for instructions and cycles where there is no PMU. The task clock is looked at, of
# which two counters agree as those of a PMU do; two of the CPU clock drift apart, by a millisecond in two
# seconds: the kernel reads the time for each whenever a thread gets or loses its processor.
SOFTWARE_EVENTS = "-DMC_PERF_EVENTS=" + ", ".join(
    f"{{PERF_TYPE_SOFTWARE, PERF_COUNT_SW_{clock}_CLOCK}}" for clock in ("CPU", "TASK")
)
CANNOT = 77
SCENARIOS = ("sharing", "turns", "alone", "killed_agent", "killed_rank", "greedy_neighbour", "late_end",
             "coming_and_going", "agent_cost", "thread")  # fmt: skip


Build = Callable[..., Path]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    shared = once.folder(tmp_path_factory) / "objects"

    def build_one(name: str, sources: Sequence[Path], folder: Path, **flags_of: tuple[str, ...]) -> Path:
        """A program of tests/c, or the keeper; `flags_of` are more flags of the file of that name."""
        files = [*sources]
        if name != "mpicoloc-keeper":
            files.append(objects.of_tests(name))
        extra = {f"{stem}.c": flags for stem, flags in flags_of.items()}
        return objects.program(folder / name, files, objects.SANITIZED, shared, extra)

    return build_one


def _run(program: Path, shm: Path, *arguments: str, **extra: str) -> str:
    environment = {name: text for name, text in os.environ.items() if not name.startswith("MPICOLOC_")}
    environment |= {"MPICOLOC_SHM_DIR": str(shm), **extra}
    command = [program, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90, check=False)
    if done.returncode == CANNOT:
        pytest.skip(f"not allowed on this machine: {done.stderr}")
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def agent_program(build: Build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("test_agent", CORE, tmp_path_factory.mktemp("agent"))


@measures_time
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_jobs_on_one_board(agent_program: Path, tmp_path: Path, scenario: str) -> None:
    _run(agent_program, tmp_path, scenario)
    assert not list(tmp_path.glob("*.board.*"))


@pytest.mark.parametrize("scenario", ["garbage", "shortened", "replaced", "other_versions"])
def test_a_board_that_is_not_as_agents_left_it(build: Build, tmp_path: Path, scenario: str) -> None:
    program = build("test_board", CORE, tmp_path)
    shm = tmp_path / "shm"
    shm.mkdir()
    _run(program, shm, scenario)
    assert not list(shm.iterdir())


@pytest.mark.parametrize(
    "scenario",
    [
        "apart",
        "squatter",
        "cut_off",
        "other_version",
        "not_read",
        "flood",
        "stranger",
        "strangers_ask",
        "lost_map",
    ],
)
def test_jobs_meet_at_a_socket(build: Build, tmp_path: Path, shm_dir: Path, scenario: str) -> None:
    _run(build("test_board_socket", CORE, tmp_path), shm_dir, scenario)
    assert not list(shm_dir.iterdir())


@pytest.mark.parametrize("trace", ["0", "all"])
def test_no_race_between_agent_board_and_tables(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path,
                                                trace: str) -> None:  # fmt: skip
    flags = (*objects.FLAGS, "-fsanitize=thread")
    files = [ROOT / "tests/c/agent/test_races.c", *CORE]
    link = ("-Wl,--wrap=mmap,--wrap=munmap", "-lm", "-lpthread", "-ldl")
    folder = once.folder(tmp_path_factory) / "objects"
    program = objects.program(tmp_path / "test_races", files, flags, folder, link=link)
    shm = tmp_path / "shm"
    shm.mkdir()
    # the thread sanitizer of older compilers needs addresses that are not random
    said = _run(
        Path("setarch"), shm, "-R", str(program), MPICOLOC_TRACE=trace, MPICOLOC_OUT=str(tmp_path / "x.h5")
    )
    assert "shutters" in said
    assert not list(shm.iterdir())


def test_what_measuring_costs_counts_for_the_duty_limit(build: Build, tmp_path: Path) -> None:
    _run(build("test_duty", CORE, tmp_path), tmp_path)


def test_an_agent_killed_at_each_step_of_a_shutter_harms_nobody(build: Build, tmp_path: Path) -> None:
    program = build("test_steps", CORE, tmp_path)
    shm = tmp_path / "shm"
    shm.mkdir()
    _run(program, shm)
    assert not list(shm.iterdir())


def test_shutters_that_several_nodes_have_in_common(build: Build, tmp_path: Path) -> None:
    program = build("test_common", CORE, tmp_path)
    shm = tmp_path / "shm"
    shm.mkdir()
    _run(program, shm)
    assert not list(shm.iterdir())


@measures_time
def test_hardware_counters_of_a_shutter(build: Build, tmp_path: Path) -> None:
    program = build("test_perf", CORE, tmp_path, perf=(SOFTWARE_EVENTS,))
    shm = tmp_path / "shm"
    shm.mkdir()
    _run(program, shm)


def test_no_counters_are_explained(build: Build, tmp_path: Path) -> None:
    program = build("test_perf", CORE, tmp_path, perf=("-DMC_PERF_EVENTS={~0u, 0}, {~0u, 0}",))
    assert "reason: " in _run(program, tmp_path, "unavailable")


@pytest.fixture(scope="module")
def keeper_program(build: Build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keeper")
    build("mpicoloc-keeper", objects.KEEPER, folder)
    writer = folder / "writer"
    # Tells how it was called; fails when the environment says so, as a shell would be told to.
    writer.write_text('#!/bin/sh\n'
                      'echo "$@ preload=$LD_PRELOAD pmi=$PMI_RANK n=$OPENBLAS_NUM_THREADS" >> "$WRITER_LOG"\n'
                      'ls "$MPICOLOC_SHM_DIR" > "$WRITER_LOG.files"\n'
                      'echo "cannot write it" >&2\n'
                      'case " $* " in *"$WRITER_DIES "*) kill -9 $$;; esac\n'
                      'exit "$WRITER_CODE"\n')  # fmt: skip
    writer.chmod(0o755)
    return build("test_keeper", CORE, folder)


@pytest.mark.parametrize(
    ("scenario", "meter", "code", "arguments", "complaint"),
    [
        ("finished", "burst", "0", "k", ""),
        ("filtered", "burst", "0", "k", ""),
        ("forbidden", "ipc", "0", "k", ""),
        ("failed", "burst", "3", "k", "mpicoloc: no profile was written: cannot write it\n"),
        ("orphaned", "burst", "0", "k", ""),
        ("deleted", "burst", "0", "k", ""),
        ("killed", "burst", "0", "k --partial", ""),
    ],
)
def test_keeper_has_the_profile_written_and_cleans_up(
    keeper_program: Path,
    tmp_path: Path,
    scenario: str,
    meter: str,
    code: str,
    arguments: str,
    complaint: str,
) -> None:
    shm, log = tmp_path / "shm", tmp_path / "log"
    shm.mkdir()
    writer = str(keeper_program.parent / "writer")
    extra = {"MPICOLOC_PYTHON": writer, "WRITER_CODE": code, "WRITER_LOG": str(log), "PMI_RANK": "0",
             "MPICOLOC_METER": meter, "WRITER_DIES": "nobody"}  # fmt: skip
    said = _run(keeper_program, shm, scenario, **extra)
    assert log.read_text() == f"-P -m mpicoloc.profile.assemble {arguments} preload= pmi= n=1\n"
    assert {"mpicoloc.k.0.seg", "mpicoloc.k.node"} <= set(Path(f"{log}.files").read_text().split())
    assert said == complaint
    assert not list(shm.iterdir())


@pytest.mark.parametrize(
    ("scenario", "dies", "runs", "end"),
    [
        ("dying", "assemble", ["assemble k", "assemble k", "checkpoints k --last"],
         "; `mpicoloc recover OUT` makes one from a checkpoint"),
        ("dead", "", 2 * ["assemble k", "assemble k", "checkpoints k --last"],
         "; another attempt at OUT follows when the ranks have ended"),
    ],
)  # fmt: skip
def test_a_writer_that_is_killed_leaves_a_part_or_is_tried_again(
    keeper_program: Path, tmp_path: Path, scenario: str, dies: str, runs: list[str], end: str
) -> None:
    shm, log = tmp_path / "shm", tmp_path / "log"
    shm.mkdir()
    writer = str(keeper_program.parent / "writer")
    out = str(tmp_path / "job.h5")
    said = _run(keeper_program, shm, scenario, MPICOLOC_PYTHON=writer, WRITER_CODE="0", WRITER_LOG=str(log),
                WRITER_DIES=dies, MPICOLOC_METER="burst", MPICOLOC_OUT=out)  # fmt: skip
    found = [line.partition(" preload=")[0] for line in log.read_text().splitlines()]
    assert found == [f"-P -m mpicoloc.profile.{run}" for run in runs]
    assert said == (
        "mpicoloc: no profile was written: its writer was killed twice (signal 9, for want of memory?)"
        + end.replace("OUT", out) + "\n"
    )  # fmt: skip
    assert not list(shm.iterdir())


def test_checkpoints_are_rarer_where_they_cost_or_fail(build: Build, tmp_path: Path) -> None:
    files = objects.of_csrc("keeper/checkpoint.c", "keeper/writer.c", "common/options.c", "common/proc.c",
                            "common/segment.c", "common/table.c")  # fmt: skip
    _run(build("test_checkpoint", files, tmp_path), tmp_path, "/bin/false", "/bin/true")


def test_cycles_are_split_at_shutters(build: Build, tmp_path: Path) -> None:
    files = objects.of_csrc("common/options.c", "common/proc.c", "common/segment.c", "common/table.c",
                            "guest/clock.c", "guest/hooks.c", "guest/lanes.c",
                            "guest/count/patch.c", "guest/rank_segment.c", "guest/regions.c",
                            "guest/usage.c")  # fmt: skip
    without_tsc = {file.stem: ("-DMC_NO_TSC",) for file in (*files, Path("test_hooks.c"))}
    _run(build("test_hooks", files, tmp_path, **without_tsc), tmp_path)
