"""Slurm through its own commands: reads the queue and the nodes, changes jobs."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mpicoloc.core.batch_system import REASONS_FOR_NODES, BatchJob, BatchNode, BatchQueue, Snapshot
from mpicoloc.core.units import slurm_seconds
from mpicoloc.errors import DataError, EnvironmentFault
from mpicoloc.network.topology.hostlist import expand

LIMIT_S = 20.0
"""Limit of one command, s; one that takes longer waits for a controller that is down."""
PAUSES_S = (0.5, 1.0, 2.0, 4.0)
"""Pauses between attempts, s: a restart of slurmctld takes a second or two."""
_AWAY_MESSAGES = (
    "Unable to contact slurm controller",
    "Connection refused",
    "Socket timed out",
    "Zero Bytes",
    "standby",
)


class ControllerAway(EnvironmentFault):
    """The controller does not answer now; it may later."""


def run_program(
    command: Sequence[str],
    pauses_s: Sequence[float] = PAUSES_S,
    sleep: Callable[[float], None] = time.sleep,
    more: Mapping[str, str] | None = None,
    *,
    limit_s: float = LIMIT_S,
    errors: str = "replace",
) -> str:
    """What a program of Slurm prints.

    Result: its standard output. Raises `EnvironmentFault` if there is no such program, the controller stays
    away, or refuses.
    """
    # SQUEUE_ variables of the user may leave jobs out.
    env = {name: text for name, text in os.environ.items() if not name.startswith("SQUEUE_")} | dict(
        more or {}
    )
    for pause_s in pauses_s:
        with contextlib.suppress(ControllerAway):
            return _run_once(command, env, limit_s, errors)
        sleep(pause_s)
    return _run_once(command, env, limit_s, errors)


def _run_once(command: Sequence[str], env: Mapping[str, str], limit_s: float, errors: str) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors=errors, check=False, timeout=limit_s,
            stdin=subprocess.DEVNULL, env=env,
        )  # fmt: skip
    except FileNotFoundError:
        raise EnvironmentFault(f"no {command[0]} here: run this where Slurm's programs are") from None
    except subprocess.TimeoutExpired:
        raise _controller_away(f"no answer in {limit_s:g} s") from None
    if done.returncode == 0:
        return done.stdout
    words = (done.stderr or done.stdout).strip() or f"exit code {done.returncode}"
    if any(word in words for word in _AWAY_MESSAGES):
        raise _controller_away(words)
    raise EnvironmentFault(f"{' '.join(command[:3])}: {words.splitlines()[-1]}")


def _controller_away(words: str) -> ControllerAway:
    return ControllerAway(f"slurmctld does not answer ({words.splitlines()[-1]}): see `scontrol ping`")


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


def snapshot(clock: Callable[[], float] = time.time, pauses_s: Sequence[float] = PAUSES_S) -> Snapshot:
    """The jobs, the nodes and the partitions now.

    Raises `EnvironmentFault` if there is no Slurm, or its controller does not answer. Raises `DataError` if
    the answer is not understood.
    """
    jobs = _read_json("squeue", "jobs", pauses_s)
    nodes = _read_json("sinfo", "nodes", pauses_s)
    if isinstance(nodes, dict) and "nodes" not in nodes:
        # From 23.02 on sinfo adds nodes up, and scontrol tells of each.
        nodes = _read_json("scontrol", "nodes", pauses_s, "show", "nodes")
    queues = partitions(run_program(["scontrol", "--oneliner", "show", "partitions"], pauses_s))
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


def settings(pauses_s: Sequence[float] = PAUSES_S) -> dict[str, str]:
    """What ``scontrol show config`` says, by name.

    Raises `EnvironmentFault` if there is no Slurm, or its controller does not answer.
    """
    lines = run_program(["scontrol", "show", "config"], pauses_s).splitlines()
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
    run_program(
        ["scontrol", "update", f"JobId={job}", *(f"{name}={text}" for name, text in changes.items())],
        pauses_s,
    )


def _read_json(command: str, what: str, pauses_s: Sequence[float], *words: str) -> object:
    more = ["--states=all"] if command == "squeue" else words
    text = run_program([command, "--json", *more], pauses_s)
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
