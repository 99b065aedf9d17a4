"""Counts outside MPI, of a thread that does what it is told, against what it counts meanwhile."""

from __future__ import annotations

import objects
import pytest
from c_tests import SOURCES, TASK_CLOCK, build, run
from objects import FLAGS, SANITIZED

TALLY = (*SOURCES, *objects.of_csrc("agent/meters/thread_counts.c"))


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return build(tmp_path_factory, "test_tally", TALLY, SANITIZED, TASK_CLOCK)


@pytest.mark.parametrize(
    "scenario", ["windows", "spans", "late", "first", "light", "fork", "limit", "closed", "ended", "pinned"]
)
def test_what_a_thread_counts_outside_mpi(program, tmp_path, scenario):
    run(program, tmp_path, scenario)


def test_instructions_outside_mpi(tmp_path_factory, tmp_path):
    run(build(tmp_path_factory, "test_tally", TALLY, SANITIZED), tmp_path, "hardware")


def test_a_tally_is_never_seen_half_written(tmp_path_factory, tmp_path):
    flags = (*FLAGS, "-fsanitize=thread")
    files = objects.of_csrc("common/counters/perf.c", "common/counters/tally.c", "common/proc.c")
    run(build(tmp_path_factory, "test_tally_race", files, flags, TASK_CLOCK), tmp_path)
