"""Series of runs that were broken off go on where they ended."""

import pytest

from mpicoloc.campaign.kept_runs import KeptRuns
from mpicoloc.errors import DataError, EnvironmentFault

SETTINGS = {"program": ["./a", "1"], "hosts": ["n0", "n1"]}


class Runs:
    """Each takes a second more than the one before."""

    def __init__(self):
        self.levels = []

    def __call__(self, levels):
        self.levels.append(list(levels))
        return float(len(self.levels))


def test_what_was_run_is_not_run_again(tmp_path):
    path, runs = str(tmp_path / "runs.jsonl"), Runs()
    time_s = KeptRuns(path, SETTINGS).reuse(runs)
    assert [time_s(levels) for levels in ([0, 0], [0, 0], [8, 0])] == [1.0, 2.0, 3.0]
    again = KeptRuns(path, SETTINGS)
    assert len(again) == 3
    time_s = again.reuse(runs)
    # Repeats of one setting are so many runs, in their order.
    assert [time_s(levels) for levels in ([8, 0], [0, 0], [0, 0])] == [3.0, 1.0, 2.0]
    assert len(runs.levels) == 3
    assert time_s([0, 0]) == 4.0 and time_s([2.5, 8]) == 5.0
    assert len(KeptRuns(path, SETTINGS)) == 5


def test_a_line_that_was_cut_off_is_dropped(tmp_path):
    path = tmp_path / "runs.jsonl"
    KeptRuns(str(path), SETTINGS).reuse(Runs())([1])
    whole = path.read_text()
    path.write_text(whole + whole.splitlines()[1][:9])
    assert len(KeptRuns(str(path), SETTINGS)) == 1
    KeptRuns(str(path), SETTINGS).reuse(Runs())([2])
    assert len(KeptRuns(str(path), SETTINGS)) == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"program": ["./b"], "hosts": ["n0", "n1"]}\n', r"runs with another program \(\['./b'\], now"),
        ("program,level\n", "is no file of runs"),
        ("{", "is no file of runs"),
        ('{"a": 1}\n{"b": 2}', "is no file of such runs"),
        ('{"program": []}\n', "is no file of such runs"),
        ("[]\n", "is no file of such runs"),
        ('{"program": ["./a", "1"], "hosts": ["n0", "n1"]}\n{"levels": 3}\n', "has no levels and seconds in"),
    ],
)
def test_another_file_is_refused_and_stays(tmp_path, text, reason):
    path = tmp_path / "runs.jsonl"
    path.write_text(text)
    with pytest.raises(DataError, match=reason):
        KeptRuns(str(path), SETTINGS)
    assert path.read_text() == text


def test_a_file_that_cannot_be_written_is_told_before_the_first_run(tmp_path):
    with pytest.raises(EnvironmentFault, match="name another file"):
        KeptRuns(str(tmp_path / "nowhere" / "runs.jsonl"), SETTINGS)
