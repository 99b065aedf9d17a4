"""Sweeps: all cases have their row, what is noted is not done again, and damage is told."""

import json
import multiprocessing
import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from sweep_work import cases, die, refuse_odd, square, square_slowly

from mpicoloc.errors import DataError, EnvironmentFault
from mpicoloc.job import pool, sweep


def fail(case, error):
    raise error


def complete(numbers, work, folder, tell=fail):
    """The results of a sweep in this process."""
    with ThreadPoolExecutor(2) as executor:
        done = sweep.complete(cases(numbers), work, str(folder), executor, tell)
    return [(case.argument, found["square"]) for case, found in done]


def keys(folder):
    return [json.loads(line)["key"] for line in (folder / sweep.ROWS).read_text().splitlines()]


def test_a_grid_has_every_combination():
    assert sweep.grid({"a": ["1", "2"], "b": ["x", "y"]}) == [
        {"a": "1", "b": "x"}, {"a": "1", "b": "y"}, {"a": "2", "b": "x"}, {"a": "2", "b": "y"}
    ]  # fmt: skip


@pytest.mark.timeout(60)
def test_two_processes_do_the_work_in_any_order(tmp_path):
    with pool.workers(2) as executor:
        done = sweep.complete(cases(range(6)), square_slowly, str(tmp_path), executor, fail)
    assert [(case.argument, found["square"]) for case, found in done] == [(x, x * x) for x in range(6)]
    # On a busy machine one of them may have done all before the other has begun.
    assert os.getpid() not in {found["pid"] for _, found in done}
    assert sorted(keys(tmp_path)) == [f"key of {x}" for x in range(6)]


def test_what_is_noted_is_not_done_again(tmp_path):
    complete([1, 2], square, tmp_path)
    before = (tmp_path / sweep.ROWS).read_text()

    def new_only(x):
        assert x == 3
        return square(x)

    assert complete([3, 2, 1, 3], new_only, tmp_path) == [(3, 9), (2, 4), (1, 1), (3, 9)]
    assert (tmp_path / sweep.ROWS).read_text().startswith(before)
    assert keys(tmp_path)[2:] == ["key of 3"]


def test_a_case_that_fails_is_told_and_tried_again(tmp_path):
    told = []
    found = complete(
        range(4), refuse_odd, tmp_path, lambda case, error: told.append((case.argument, str(error)))
    )
    assert found == [(0, 0), (2, 4)] and sorted(told) == [(1, "1 is odd"), (3, "3 is odd")]
    assert complete(range(4), square, tmp_path) == [(x, x * x) for x in range(4)]


@pytest.mark.timeout(60)
def test_a_process_that_dies_ends_the_sweep_with_the_remedy(tmp_path):
    with pool.workers(1) as executor, pytest.raises(EnvironmentFault, match="same command again"):
        sweep.complete(cases([1]), die, str(tmp_path), executor, fail)


@pytest.mark.timeout(60)
def test_an_interrupt_does_not_wait_for_what_is_running(tmp_path):
    """Each case would take an hour."""
    with pytest.raises(KeyboardInterrupt), pool.workers(2) as executor:
        running = [executor.submit(time.sleep, 3600) for _ in range(4)]
        while not running[0].running():
            time.sleep(0.01)
        raise KeyboardInterrupt
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("end", [b'{"key": "key of 2", "row": {"squ', b"#\xff\n", b"[]\n", b"{}\n"])
def test_a_damaged_last_row_is_told_and_made_again(tmp_path, capsys, end):
    complete([1], square, tmp_path)
    path = tmp_path / sweep.ROWS
    path.write_bytes(path.read_bytes() + end)
    assert complete([1, 2], square, tmp_path) == [(1, 1), (2, 4)]
    assert "line 2" in capsys.readouterr().err
    complete([1, 2, 4], square, tmp_path)
    assert capsys.readouterr().err == "", "it is gone"
    assert keys(tmp_path) == ["key of 1", "key of 2", "key of 4"]


def test_a_damaged_row_before_others_is_refused(tmp_path):
    complete([1, 2], square, tmp_path)
    path = tmp_path / sweep.ROWS
    path.write_text("x" + path.read_text())
    with pytest.raises(DataError, match="line 1, is not a row"):
        complete([1, 2], square, tmp_path)


def test_one_sweep_at_a_time(tmp_path):
    with (
        sweep.only_one(str(tmp_path / "new"), "sweep"),
        pytest.raises(EnvironmentFault, match="another sweep is running"),
        sweep.only_one(str(tmp_path / "new"), "sweep"),
    ):
        pass
