"""What Slurm's commands say: recorded answers of Slurm 22.05."""

import copy
import json
import sys
from pathlib import Path

import pytest

from mpicoloc.errors import DataError, EnvironmentFault
from mpicoloc.run import slurm, slurm_command

ANSWERS = json.loads((Path(__file__).parent / "slurm_answers.json").read_text())


def test_jobs_and_nodes_are_as_slurm_says():
    found = slurm.parsed(ANSWERS["squeue"], ANSWERS["sinfo"], 1795366100.0)
    jobs = {job.name: job for job in found.jobs}
    waiting, pinned, running = jobs["F"], jobs["H"], jobs["r1"]
    assert (waiting.state, waiting.partition, waiting.n_tasks, waiting.limit_s) == (
        "PENDING",
        "whole",
        4,
        600,
    )
    assert not waiting.is_bound
    assert pinned.wanted_nodes == ("n2",)
    assert pinned.is_bound
    assert (running.state, running.nodes) == ("RUNNING", ("n3",))
    assert waiting.submit_s > 1.7e9 and running.start_s >= running.submit_s
    assert waiting.kind == ("root", "F", 4)
    (node, *_) = found.nodes
    assert (node.name, node.n_cpus, node.memory_bytes, node.is_up) == ("n1", 4, 1000 * 2**20, True)
    assert set(node.partitions) == {"shared", "whole"}


@pytest.mark.parametrize(
    ("state", "flags"), [("down", []), ("idle", ["DRAIN"]), ("idle", ["NOT_RESPONDING"])]
)
def test_a_node_that_takes_no_jobs_is_not_up(state, flags):
    answer = copy.deepcopy(ANSWERS["sinfo"])
    answer["nodes"][0] |= {"state": state, "state_flags": flags}
    assert not slurm.parsed(ANSWERS["squeue"], answer, 0.0).nodes[0].is_up


@pytest.mark.parametrize(
    "answer",
    [{}, {"jobs": None}, {"jobs": [{}]}, {"jobs": [{"job_id": "x"}]}, [], {"errors": ["no"], "jobs": []}],
)
def test_an_answer_of_another_kind_is_told(answer):
    with pytest.raises(DataError, match="Slurm's answer is not understood"):
        slurm.parsed(answer, ANSWERS["sinfo"], 0.0)


def test_without_slurm_one_line_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentFault, match="no squeue here"):
        slurm.snapshot()


def test_a_controller_that_does_not_answer(monkeypatch, tmp_path):
    squeue = tmp_path / "squeue"
    squeue.write_text(
        "#!/bin/sh\necho 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1\n"
    )
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(EnvironmentFault, match="Unable to contact slurm controller"):
        slurm.snapshot(pauses_s=())


AWAY = "import sys; sys.exit('slurm_load_jobs error: Unable to contact slurm controller (connect failure)')"


def test_a_controller_that_is_away_is_asked_again_until_patience_ends():
    slept = []
    with pytest.raises(EnvironmentFault, match="scontrol ping"):
        slurm_command.ask([sys.executable, "-c", AWAY], (0.5, 1.0), slept.append)
    assert slept == [0.5, 1.0]


def test_an_answer_after_a_restart_counts(tmp_path):
    up = tmp_path / "up"
    code = f"import os, sys\nif os.path.exists({str(up)!r}): sys.exit(print('there'))\n{AWAY}"
    assert slurm_command.ask([sys.executable, "-c", code], (0.5,), lambda _: up.touch()) == "there\n"


def test_a_refusal_is_told_at_once():
    code = "import sys; sys.exit('slurm_update error: Access/permission denied')"
    with pytest.raises(EnvironmentFault, match="permission denied"):
        slurm_command.ask([sys.executable, "-c", code], (9.0,), pytest.fail)
