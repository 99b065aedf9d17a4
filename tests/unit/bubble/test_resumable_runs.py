"""Series of runs that were interrupted go on where they ended."""

import pytest

from mpicoloc.bubble.propagation_runs import resumable
from mpicoloc.errors import DataError, EnvironmentFault

SETTINGS = {"program": ["./a", "1"], "hosts": ["n0", "n1"]}


class Runs:
    """Each takes a second more than the one before."""

    def __init__(self):
        self.levels = []

    def __call__(self, levels):
        self.levels.append(list(levels))
        return float(len(self.levels))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs.jsonl"


def test_noted_runs_are_not_made_again(path):
    runs = Runs()
    time_s = resumable(runs, str(path), SETTINGS)
    assert [time_s(levels) for levels in ([0, 0], [0, 0], [8, 0])] == [1.0, 2.0, 3.0]
    time_s = resumable(runs, str(path), SETTINGS)
    # Repeats of one setting are so many runs, in their order.
    assert [time_s(levels) for levels in ([8, 0], [0, 0], [0, 0])] == [3.0, 1.0, 2.0]
    assert len(runs.levels) == 3
    assert time_s([0, 0]) == 4.0 and time_s([2.5, 8]) == 5.0


def test_runs_of_other_settings_are_made_and_stay(path):
    runs = Runs()
    for settings in (SETTINGS, {**SETTINGS, "hosts": ["n2", "n3"]}, SETTINGS):
        resumable(runs, str(path), settings)([4])
    assert len(runs.levels) == 2 and len(path.read_text().splitlines()) == 2


def test_run_that_was_cut_off_is_made_again(path):
    runs = Runs()
    resumable(runs, str(path), SETTINGS)([1])
    whole = path.read_text()
    path.write_text(whole + whole[:9])
    time_s = resumable(runs, str(path), SETTINGS)
    assert [time_s([1]), time_s([1])] == [1.0, 2.0]
    assert len(path.read_text().splitlines()) == 2


@pytest.mark.parametrize("text", ["program,level\n", "program", "a\nb\n", '{"levels": 3}\n{"levels": 4}\n'])
def test_other_files_are_refused_and_stay(path, text):
    path.write_text(text)
    with pytest.raises(DataError, match="line 1, is not a row"):
        resumable(Runs(), str(path), SETTINGS)
    assert path.read_text() == text
    with pytest.raises(EnvironmentFault, match="name another file"):
        resumable(Runs(), str(path.parent / "nowhere" / "runs.jsonl"), SETTINGS)
