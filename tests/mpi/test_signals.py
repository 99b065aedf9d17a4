"""Programs that sleep and use signals, paused hundreds of times a second, behave as without the gate."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import objects
import once
import pytest
import shimlab

pytestmark = pytest.mark.timeout(2 * shimlab.TIME_LIMIT_S)
measures_time = pytest.mark.serial

ROOT = Path(__file__).resolve().parents[2]
BLOCKING = ("blocked", "signal_thread", "signal_file")  # all signals, before MPI_Init
TIMERS = ("timer", "alarm_pause", "alarm_breaks")
KINDS = (*BLOCKING, *TIMERS, "handlers", "cancelling", "children", "alternate_stack", "sleeping")
FLAGS = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror")


def compile_c(name, sources, factory):
    files = [*sources, objects.of_tests(name)]
    return objects.program(factory.mktemp(name) / name, files, FLAGS, once.folder(factory) / "objects")


@pytest.fixture(scope="module")
def gate_program(tmp_path_factory):
    return compile_c("test_gate", (*objects.AGENT, *objects.RECORDER), tmp_path_factory)


@pytest.fixture(scope="module")
def pauser(tmp_path_factory):
    return compile_c("pauser", objects.AGENT, tmp_path_factory)


@contextmanager
def everybody_paused(pauser):
    process = subprocess.Popen([str(pauser)], env=os.environ)
    try:
        yield
        assert process.poll() is None
    finally:
        process.terminate()
        process.wait(timeout=30)


def run_gate(program, *words):
    done = subprocess.run(
        [str(program), *words], capture_output=True, text=True, timeout=120, check=False, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def calls(program, mode, n_threads):
    """Effect of a signal on each call: {call: "goes on" or "EINTR"}."""
    return dict(line.split(" | ") for line in run_gate(program, "calls", mode, n_threads))


def published_table():
    """The same from the documentation: {call: (with a handler alone, with the gate)}."""
    text = (ROOT / "docs" / "explain" / "gate.md").read_text(encoding="utf-8")
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in text.splitlines()]
    return {row[0]: (row[1], row[2]) for row in rows if len(row) == 3 and row[1] in ("goes on", "EINTR")}


@measures_time
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="calls begin again on x86-64 only")
@pytest.mark.parametrize("n_threads", ["1", "2"])
def test_calls_go_on_as_published(gate_program, n_threads):
    with ThreadPoolExecutor() as at_once:
        plain, gate = at_once.map(lambda mode: calls(gate_program, mode, n_threads), ("plain", "gate"))
    assert {name: (plain[name], gate[name]) for name in plain} == published_table()


@measures_time
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="calls begin again on x86-64 only")
@pytest.mark.parametrize("n_threads", ["1", "2"])
def test_threads_that_fall_asleep_as_they_are_told(gate_program, n_threads):
    plain, gate = (
        dict(line.split() for line in run_gate(gate_program, "race", mode, n_threads))
        for mode in ("plain", "gate")
    )
    assert int(plain["signals"]) > 0
    assert int(plain["interrupted"]) > 0  # or this test would show nothing
    assert int(gate["signals"]) > 0
    assert int(gate["interrupted"]) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_programs_with_signals(family, shm_dir, pauser, kind):
    program = family.compile("signals.c")
    words = ["block"] if kind in BLOCKING else []
    with everybody_paused(pauser), ThreadPoolExecutor() as at_once:  # nobody pauses the bare one
        launched = [
            at_once.submit(shimlab.launch, family, 2, program, kind, *words, preload=preload)
            for preload in (None, family.shim)
        ]
        bare, paused = (each.result() for each in launched)
    assert len(bare.lines) >= 2
    assert paused.lines == bare.lines
    assert (paused.code, bare.code) == (5, 5)
    found = shimlab.segments(shm_dir)
    assert sorted(found) == [0, 1]
    # A rank that sleeps, or waits for a processor on a busy machine, may never run at the instant of a pause.
    assert any(shimlab.counter(segment, "n_pauses") > 0 for segment in found.values())


@measures_time
def test_a_cancelled_thread_leaves_the_gate_in_place(gate_program):
    assert run_gate(gate_program, "cancel", "gate", "2") == ["before 1", "after 1"]


@measures_time
def test_a_call_that_a_signal_has_ended_does_not_begin_again(gate_program):
    assert run_gate(gate_program, "woken", "gate") == ["ended by the signal"] * 4 + ["gate 4"]


@measures_time
def test_signals_that_end_a_suspension_are_not_lost(gate_program):
    lines = dict(line.split() for line in run_gate(gate_program, "suspend", "gate", "1"))
    assert int(lines["signals"]) > 0
    assert lines["handled"] == lines["sent"]
