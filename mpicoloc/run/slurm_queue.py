"""The queue of Slurm as plain data: ``squeue --json``, read strictly."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mpicoloc.errors import DataError
from mpicoloc.run import slurm_command

COMMAND = ("squeue", "--all", "--json")


@dataclass(frozen=True)
class QueuedJob:
    """A job as slurmctld knows it; times in s since 1970, None for what is not known or has no limit."""

    id: int
    uid: int
    user: str
    name: str
    command: str
    """Script or program with its arguments; empty for `sbatch --wrap`."""
    partition: str
    state: str
    reason: str
    """Why it waits."""
    n_nodes: int
    n_cpus: int
    n_tasks: int
    nodes: str
    """Where it runs, in Slurm's short form; empty while it waits."""
    required_nodes: str
    features: str
    dependency: str
    reservation: str
    time_limit_s: float | None
    submit_unix_s: float
    eligible_unix_s: float | None
    start_unix_s: float | None
    end_unix_s: float | None
    priority: int
    array: str
    """Tasks of an array that still wait; empty for other jobs."""
    admin_comment: str

    @property
    def is_held(self) -> bool:
        """Somebody has to release it."""
        return self.state == "PENDING" and self.reason.startswith("JobHeld")

    @property
    def is_ready(self) -> bool:
        """It waits for nothing but room."""
        return self.state == "PENDING" and self.reason in _WAIT_FOR_ROOM


_WAIT_FOR_ROOM = ("None", "Resources", "Priority")
_TEXTS = {
    "user": "user_name",
    "name": "name",
    "command": "command",
    "partition": "partition",
    "reason": "state_reason",
    "nodes": "nodes",
    "required_nodes": "required_nodes",
    "features": "features",
    "dependency": "dependency",
    "reservation": "resv_name",
    "array": "array_task_string",
    "admin_comment": "admin_comment",
}
_COUNTS = {
    "id": "job_id",
    "uid": "user_id",
    "n_nodes": "node_count",
    "n_cpus": "cpus",
    "n_tasks": "tasks",
    "priority": "priority",
}
_TIMES = {"eligible_unix_s": "eligible_time", "start_unix_s": "start_time", "end_unix_s": "end_time"}


def read(
    pauses_s: Sequence[float] = slurm_command.PAUSES_S, sleep: Callable[[float], None] = time.sleep
) -> tuple[QueuedJob, ...]:
    """All jobs that slurmctld knows, those that have ended of late among them, by their numbers.

    Raises
    ------
    EnvironmentFault
        If Slurm stays away.
    DataError
        If the answer is not understood.
    """
    return parse(slurm_command.ask(COMMAND, pauses_s, sleep))


def parse(text: str) -> tuple[QueuedJob, ...]:
    """Jobs in the JSON of ``squeue``, of Slurm 22.05 and of later versions that write numbers as objects.

    Raises
    ------
    DataError
        If it is no such JSON, or a job lacks one of the fields that are used here.
    """
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"squeue --json wrote no JSON ({error}): is its plugin `serializer/json` there?"
        ) from None
    if not isinstance(answer, dict) or not isinstance(answer.get("jobs"), list):
        raise DataError("squeue --json wrote no list `jobs`: of what version is it?")
    if answer.get("errors"):
        raise DataError(f"squeue --json tells of an error: {str(answer['errors'])[:200]}")
    return tuple(sorted(map(_job, answer["jobs"]), key=lambda job: job.id))


def _job(row: Any) -> QueuedJob:
    if not isinstance(row, dict):
        raise DataError(f"squeue --json: {str(row)[:60]!r} is no job")
    try:
        limit_min = _number(row, "time_limit")
        facts: dict[str, Any] = {field: _text(row, key) for field, key in _TEXTS.items()}
        facts |= {field: int(_number(row, key) or 0) for field, key in _COUNTS.items()}
        facts |= {field: _number(row, key) or None for field, key in _TIMES.items()}
        facts["time_limit_s"] = None if limit_min is None else limit_min * 60.0
        facts["submit_unix_s"] = _number(row, "submit_time") or 0.0
        return QueuedJob(state=_state(row), **facts)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        number = row.get("job_id")
        raise DataError(f"squeue --json: job {str(number)[:20]} is not understood: {error!r}") from None


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row[key]
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError(f"{key} is {value!r}")
    return value


def _state(row: Mapping[str, Any]) -> str:
    """The state; later versions give a list, the state first, what happens to it after."""
    value = row["job_state"]
    state = value[0] if isinstance(value, list) and value else value
    if not isinstance(state, str) or not state:
        raise TypeError(f"job_state is {value!r}")
    return state


def _number(row: Mapping[str, Any], key: str) -> float | None:
    """A number that is not negative; None where it is unset or without a limit."""
    value = row[key]
    if isinstance(value, dict):
        value = value["number"] if value["set"] and not value["infinite"] else None
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{key} is {value!r}")
    return float(value)
