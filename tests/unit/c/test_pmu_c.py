"""Hardware counters over a rank's whole run, in C: right values, and no harm where counting is refused."""

import subprocess

import objects
import pytest
from c_tests import SOURCES, TASK_CLOCK, build, run
from objects import SANITIZED

COUNTED = ("own", "kernel", "threads", "earlier", "fork", "exec", "lists", "default",
           "hardware", "hardware_raw")  # fmt: skip
REFUSED = ("refused", "killed", "killed_later", "agent", "agent_refused", "harmless", "thread", "limit",
           "taken", "closed", "others", "low")  # fmt: skip


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return build(tmp_path_factory, "test_pmu", SOURCES, SANITIZED)


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    return build(tmp_path_factory, "test_pmu_refused", SOURCES, SANITIZED, TASK_CLOCK)


@pytest.mark.parametrize("scenario", COUNTED)
def test_what_is_counted_and_for_whom(program, tmp_path, scenario):
    run(program, tmp_path, scenario)


def test_a_program_that_counts_by_itself_is_left_alone(program, tmp_path, tmp_path_factory, monkeypatch):
    library = tmp_path_factory.mktemp("papi") / "libpapi.so.7"
    subprocess.run(
        [*objects.compiler(), "-shared", "-x", "c", "/dev/null", "-o", library], check=True, timeout=60
    )
    monkeypatch.setenv("OTHER_LIBRARY", str(library))
    run(program, tmp_path, "papi")


@pytest.mark.parametrize("scenario", REFUSED)
def test_no_harm_where_nothing_can_be_counted(refused, tmp_path, scenario):
    run(refused, tmp_path, scenario)
