"""Slurm through its own commands: reads the queue and the nodes, changes jobs."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mpicoloc.core.batch_system import REASONS_FOR_NODES, BatchJob, BatchNode, BatchQueue, Snapshot
from mpicoloc.core.units import slurm_seconds
from mpicoloc.errors import DataError
from mpicoloc.network.topology.hostlist import expand
from mpicoloc.slurm import command as slurm_command

_DOWN = {"down", "unknown", "error", "future", "invalid"}
_NOT_FOR_JOBS = {
    "DRAIN",
    "DRAINING",
    "FAIL",
    "NOT_RESPONDING",
    "POWERED_DOWN",
    "MAINTENANCE",
    "RESERVED",
    "REBOOT_REQUESTED",
}
_CONDITIONS = (
    *("dependency", "excluded_nodes", "resv_name", "features", "licenses", "tres_per_node", "tres_per_job"),
    *("tres_per_task", "tres_per_socket", "het_job_id", "array_job_id", "array_task_string"),
)
"""Fields with conditions beyond nodes and processors. A change of one array task changes all tasks."""
_NO_VALUE = 0xFFFFFFFE
_UNLIMITED = (0, 0xFFFFFFFF, _NO_VALUE, math.inf)


def snapshot(
    clock: Callable[[], float] = time.time, pauses_s: Sequence[float] = slurm_command.PAUSES_S
) -> Snapshot:
    """The jobs, the nodes and the partitions now.

    Raises `EnvironmentFault` if there is no Slurm, or its controller does not answer. Raises `DataError` if
    the answer is not understood.
    """
    jobs = _read_json("squeue", "jobs", pauses_s)
    nodes = _read_json("sinfo", "nodes", pauses_s)
    if isinstance(nodes, dict) and "nodes" not in nodes:
        # From 23.02 on sinfo adds nodes up, and scontrol tells of each.
        nodes = _read_json("scontrol", "nodes", pauses_s, "show", "nodes")
    queues = partitions(slurm_command.run(["scontrol", "--oneliner", "show", "partitions"], pauses_s))
    return parsed(jobs, nodes, clock(), queues, has_memory=shares_out_memory(settings(pauses_s)))


def partitions(settings_text: str) -> tuple[BatchQueue, ...]:
    """What ``scontrol --oneliner show partitions`` says of them."""
    found = []
    for line in settings_text.splitlines():
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if "PartitionName" in words:
            tier = words.get("PriorityTier", "")
            max_s = slurm_seconds(words.get("MaxTime", ""))
            found.append(
                BatchQueue(
                    words["PartitionName"],
                    int(tier) if tier.isdecimal() else 1,
                    math.inf if max_s is None else max_s,
                )
            )
    return tuple(found)


def shares_out_memory(settings_text: Mapping[str, str]) -> bool:
    """Whether jobs get only as much memory as they ask for, by Slurm's settings."""
    return "MEMORY" in settings_text.get("SelectTypeParameters", "").upper()


def settings(pauses_s: Sequence[float] = slurm_command.PAUSES_S) -> dict[str, str]:
    """What ``scontrol show config`` says, by name.

    Raises `EnvironmentFault` if there is no Slurm, or its controller does not answer.
    """
    lines = slurm_command.run(["scontrol", "show", "config"], pauses_s).splitlines()
    words = (line.partition("=") for line in lines if "=" in line)
    return {name.strip(): value.strip() for name, _, value in words}


def parsed(
    jobs: object,
    nodes: object,
    now_s: float,
    queues: tuple[BatchQueue, ...] = (),
    *,
    has_memory: bool = False,
) -> Snapshot:
    """What ``squeue --json`` and ``sinfo --json`` (from 23.02 on ``scontrol show nodes --json``) say.

    Versions differ: numbers of 23.02 and later are ``{"set": ..., "infinite": ..., "number": ...}``, and
    states are lists. `has_memory`: jobs get only as much memory as they ask for.

    Raises `DataError` if something is missing or of another kind: another version of Slurm.
    """
    try:
        found = tuple(_job(row, has_memory) for row in _rows(jobs, "jobs"))
        return Snapshot(now_s, found, tuple(_node(row) for row in _rows(nodes, "nodes")), queues)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DataError(
            f"Slurm's answer is not understood ({type(error).__name__}: {error}): "
            "tried is Slurm 22.05, and read are the forms of 23.02 to 24.11"
        ) from None


def update(job: int, changes: Mapping[str, str], pauses_s: Sequence[float] = ()) -> None:
    """Change a job, as ``scontrol update`` does.

    Raises `slurm_command.ControllerAway` if the controller does not answer. Raises `EnvironmentFault` if
    Slurm refuses: the job has ended or begun, or the caller is no operator.
    """
    slurm_command.run(
        ["scontrol", "update", f"JobId={job}", *(f"{name}={text}" for name, text in changes.items())],
        pauses_s,
    )


def _read_json(command: str, what: str, pauses_s: Sequence[float], *words: str) -> object:
    more = ["--states=all"] if command == "squeue" else words
    text = slurm_command.run([command, "--json", *more], pauses_s)
    try:
        return json.loads(text)
    except ValueError:
        raise DataError(f"{command} --json gave no JSON of {what}: {text[:80]!r}") from None


def _rows(answer: Any, what: str) -> list[Mapping[str, Any]]:
    if answer.get("errors"):
        raise ValueError(f"errors {answer['errors']}")
    return list(answer[what])


def _job(row: Mapping[str, Any], has_memory: bool) -> BatchJob:
    minutes = _number(row["time_limit"])
    states = _words(row["job_state"])
    dependency = str(row["dependency"] or "")
    n_nodes = int(_number(row["node_count"]))
    return BatchJob(
        id=int(_number(row["job_id"])),
        user=str(row["user_name"]),
        name=str(row["name"]),
        state="COMPLETING" if "COMPLETING" in states else states[0],
        partition=str(row["partition"]),
        n_nodes=n_nodes,
        n_tasks=max(int(_number(row["tasks"])), 1),
        n_cpus=int(_number(row["cpus"])),
        nodes=_names(row["nodes"]),
        wanted_nodes=_names(row["required_nodes"]),
        waits_for=tuple(int(number) for number in re.findall(r":(\d+)", dependency)),
        is_chained=not all(word.startswith("afterany:") for word in re.split("[,?]", dependency) if word),
        submit_s=float(_number(row["submit_time"])),
        start_s=float(_number(row["start_time"])),
        limit_s=math.inf if minutes in _UNLIMITED else 60.0 * minutes,
        priority=int(_number(row["priority"])),
        reason=str(row["state_reason"] or ""),
        admin_comment=str(row["admin_comment"] or ""),
        is_bound=any(_is_given(row[name]) for name in _CONDITIONS)
        or bool(row["required_nodes"])
        or n_nodes < _number(row["max_nodes"]) < _NO_VALUE
        or (row["state_reason"] or "") not in REASONS_FOR_NODES,
        memory_bytes=_memory_bytes(row, n_nodes) if has_memory else 0.0,
    )


def _memory_bytes(row: Mapping[str, Any], n_nodes: int) -> float:
    """Memory that a job asks for on each node, bytes; infinite if it asks for none, because it gets all."""
    n_cpus = math.ceil(_number(row["cpus"]) / max(n_nodes, 1))
    asked_mib = max(_number(row["memory_per_node"]), _number(row["memory_per_cpu"]) * n_cpus)
    return asked_mib * 2**20 or math.inf


def _node(row: Mapping[str, Any]) -> BatchNode:
    states = _words(row["state"])
    flags = {*states[1:], *map(str, row.get("state_flags", ()))}
    is_up = states[0].lower() not in _DOWN and not flags & _NOT_FOR_JOBS
    partitions = tuple(map(str, row["partitions"]))
    memory_bytes = _number(row["real_memory"]) * 2**20
    return BatchNode(str(row["name"]), int(_number(row["cpus"])), memory_bytes, is_up, partitions)


def _number(value: Any) -> float:
    """A number of Slurm's JSON, which may be null or wrapped; 0 if it is not set."""
    if isinstance(value, Mapping):
        value = math.inf if value["infinite"] else value["number"] if value["set"] else None
    return 0 if value is None else float(value)


def _is_given(value: Any) -> bool:
    return bool(_number(value)) if isinstance(value, Mapping) else bool(value)


def _words(value: Any) -> list[str]:
    """A state, or a state with its flags behind it."""
    return [str(word) for word in value] if isinstance(value, list) else [str(value)]


def _names(text: object) -> tuple[str, ...]:
    return tuple(expand(str(text), "squeue")) if text else ()
