"""Slurm through its command line: reads the queue, the nodes and single jobs, and changes jobs."""

from __future__ import annotations

import contextlib
import json
import math
import os
import pwd
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mpicoloc.core.batch_system import REASONS_FOR_NODES, BatchJob, BatchNode, BatchQueue, Snapshot
from mpicoloc.core.units import slurm_seconds
from mpicoloc.errors import DataError, EnvironmentFault
from mpicoloc.network.topology.hostlist import expand

LIMIT_S = 20.0
"""Time limit of one command, s. A command that takes longer is waiting for a controller that is down."""
PAUSES_S = (0.5, 1.0, 2.0, 4.0)
"""Pauses between attempts, s: a restart of slurmctld takes a second or two."""
_AWAY_MESSAGES = (
    "Unable to contact slurm controller",
    "Connection refused",
    "Socket timed out",
    "Zero Bytes",
    "standby",
)
BUSY_MESSAGE = "Resource temporarily unavailable"
"""Answer of slurmctld (24.11 or later) to a change of partition before the first scheduling attempt."""
_BUSY_PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)
"""Pauses between attempts to change a job while slurmctld answers `BUSY_MESSAGE`, s."""


class ControllerAway(EnvironmentFault):
    """The controller does not answer at the moment."""


def run_program(
    command: Sequence[str],
    pauses_s: Sequence[float] = PAUSES_S,
    sleep: Callable[[float], None] = time.sleep,
    *,
    limit_s: float = LIMIT_S,
    errors: str = "replace",
) -> str:
    """Standard output of a Slurm command, with times in s since 1970.

    Raises `EnvironmentFault` if the command does not exist, or the controller
    does not answer or refuses.
    """
    # The user's SQUEUE_ variables could hide jobs.
    env = {name: text for name, text in os.environ.items() if not name.startswith("SQUEUE_")}
    env["SLURM_TIME_FORMAT"] = "%s"
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
        raise EnvironmentFault(
            f"{command[0]} is not installed here: run this on a machine with Slurm's commands"
        ) from None
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


def ask(command: Sequence[str]) -> str:
    """Output of a Slurm command at a job's end, with a short limit; `os.fsencode` gives its bytes."""
    return run_program(command, limit_s=_ASK_S, errors="surrogateescape")


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
    *("tres_per_socket", "het_job_id", "array_job_id", "array_task_string"),
)
"""Fields with conditions beyond nodes and processors. Fields of arrays count too, because a change to one
task of an array changes all tasks."""
_CPUS_ALONE = re.compile(r"(cpu[=:]\d+)?")
_SHAPES = (
    *("contiguous", "tasks_per_node", "tasks_per_socket", "tasks_per_core", "tasks_per_board"),
    *("sockets_per_node", "cores_per_socket", "threads_per_core"),
)
"""Fields with conditions on how tasks lie on nodes."""
_NO_VALUE = 0xFFFFFFFE
_UNLIMITED = (0, 0xFFFFFFFF, _NO_VALUE, math.inf)


def snapshot(clock: Callable[[], float] = time.time, pauses_s: Sequence[float] = PAUSES_S) -> Snapshot:
    """Current jobs, nodes and partitions.

    Raises `EnvironmentFault` if Slurm is not installed or its controller does not answer. Raises `DataError`
    if the answer is not understood.
    """
    jobs = _read_json("squeue", "jobs", pauses_s)
    nodes = _read_json("sinfo", "nodes", pauses_s)
    if isinstance(nodes, dict) and "nodes" not in nodes:
        # Since Slurm 23.02, sinfo groups nodes together, so ask scontrol, which lists each node.
        nodes = _read_json("scontrol", "nodes", pauses_s, "show", "nodes")
    queues = partitions(run_program(["scontrol", "--oneliner", "show", "partitions"], pauses_s))
    return parsed(jobs, nodes, clock(), queues, has_memory=shares_out_memory(settings(pauses_s)))


def partitions(settings_text: str) -> tuple[BatchQueue, ...]:
    """Partitions from the output of ``scontrol --oneliner show partitions``."""
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
                    words.get("OverSubscribe", "NO"),
                )
            )
    return tuple(found)


def shares_out_memory(settings_text: Mapping[str, str]) -> bool:
    """Whether jobs get only as much memory as they request, according to Slurm's settings."""
    return "MEMORY" in settings_text.get("SelectTypeParameters", "").upper()


def settings(pauses_s: Sequence[float] = PAUSES_S) -> dict[str, str]:
    """Settings from ``scontrol show config``, by name.

    Raises `EnvironmentFault` if Slurm is not installed or its controller does not answer.
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
    """Parse the output of ``squeue --json`` and ``sinfo --json`` (23.02 on: ``scontrol show nodes --json``).

    From 23.02 on numbers are ``{"set": ..., "infinite": ..., "number": ...}``, and states are lists.
    `has_memory` says that jobs get only as much memory as they request.

    Raises `DataError` if a field is missing or has another type, as in another version of Slurm.
    """
    try:
        found = tuple(_job(row, has_memory) for row in _rows(jobs, "jobs"))
        return Snapshot(now_s, found, tuple(_node(row) for row in _rows(nodes, "nodes")), queues)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DataError(
            f"Slurm's answer cannot be parsed ({type(error).__name__}: {error}): "
            "mpicoloc is tested with Slurm 22.05, 24.11 and 26.05"
        ) from None


def update(job: int, changes: Mapping[str, str], pauses_s: Sequence[float] = ()) -> None:
    """Change a job by ``scontrol update``.

    Raises `ControllerAway` if the controller does not answer. Raises `EnvironmentFault` if Slurm refuses: the
    job has ended or begun, Slurm has not tried to start it yet (as for a held job), or the caller is not an
    operator.
    """
    command = ["scontrol", "update", f"JobId={job}", *(f"{name}={text}" for name, text in changes.items())]
    for pause_s in _BUSY_PAUSES_S:
        try:
            run_program(command, pauses_s)
        except EnvironmentFault as error:
            if BUSY_MESSAGE not in str(error):
                raise
        else:
            return
        time.sleep(pause_s)
    run_program(command, pauses_s)


def _read_json(command: str, what: str, pauses_s: Sequence[float], *words: str) -> object:
    more = ["--states=all"] if command == "squeue" else words
    text = run_program([command, "--json", *more], pauses_s)
    try:
        return json.loads(text)
    except ValueError:
        raise DataError(f"{command} --json did not print JSON with {what}: {text[:80]!r}") from None


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
        # In Slurm 24.11, `--cpus-per-task` is among these resources.
        or not _CPUS_ALONE.fullmatch(row["tres_per_task"] or "")
        or bool(row["required_nodes"])
        or _can_have_more(row, n_nodes)
        or (row["state_reason"] or "") not in REASONS_FOR_NODES,
        memory_bytes=_memory_bytes(row, n_nodes) if has_memory else 0.0,
        prefer=str(row.get("prefer") or ""),
        comment=str(row.get("comment") or ""),
        most_nodes=int(most) if (most := _number(row["max_nodes"])) < _NO_VALUE else 0,
        min_cpus=int(_number(row.get("minimum_cpus_per_node"))),
        is_shaped=any(_is_given(row.get(name)) for name in _SHAPES),
    )


def _can_have_more(row: Mapping[str, Any], n_nodes: int) -> bool:
    """Whether the user lets the job have more nodes than it needs.

    Slurm 26.05 also sets a largest number of nodes for jobs whose users give none.
    """
    is_implicit = "JOB_IMPLICIT_MAX_NODES" in row.get("flags", ())
    return not is_implicit and n_nodes < _number(row["max_nodes"]) < _NO_VALUE


def _memory_bytes(row: Mapping[str, Any], n_nodes: int) -> float:
    """Memory that a job requests on each node, bytes. If it requests none, infinite: it gets all memory."""
    n_cpus = math.ceil(_number(row["cpus"]) / max(n_nodes, 1))
    asked_mib = max(_number(row["memory_per_node"]), _number(row["memory_per_cpu"]) * n_cpus)
    return asked_mib * 2**20 or math.inf


def _node(row: Mapping[str, Any]) -> BatchNode:
    states = _words(row["state"])
    flags = {*states[1:], *map(str, row.get("state_flags", ()))}
    is_up = states[0].lower() not in _DOWN and not flags & _NOT_FOR_JOBS
    partitions = tuple(map(str, row["partitions"]))
    memory_bytes = _number(row["real_memory"]) * 2**20
    given = row.get("features") or ()  # a text in Slurm 22.05
    features = tuple(given.split(",") if isinstance(given, str) else map(str, given))
    return BatchNode(
        str(row["name"]), int(_number(row["cpus"])), memory_bytes, is_up, partitions, features,
        n_used=int(_number(row.get("alloc_cpus"))),
    )  # fmt: skip


def _number(value: Any) -> float:
    """A number from Slurm's JSON, which may be null or wrapped in an object; 0 if it is not set."""
    if isinstance(value, Mapping):
        value = math.inf if value["infinite"] else value["number"] if value["set"] else None
    return 0 if value is None else float(value)


def _is_given(value: Any) -> bool:
    """Whether a field is a condition: not if it is not set, or unlimited."""
    return 0 < _number(value) < math.inf if isinstance(value, Mapping) else bool(value)


def _words(value: Any) -> list[str]:
    """A state, followed by its flags if Slurm gives a list."""
    return [str(word) for word in value] if isinstance(value, list) else [str(value)]


def _names(text: object) -> tuple[str, ...]:
    return tuple(expand(str(text), "squeue")) if text else ()


_ASK_S = 5.0
"""Longest wait for one answer of Slurm, s; slurmd allows 20 s for all answers together."""
_WIDTH, COMMENT_WIDTH = 128, 8192
_FIELDS = ("JobID", "UserID", "SubmitTime", "StartTime", "StateCompact", "ArrayJobID", "ArrayTaskID",
           "HetJobID", "HetJobOffset", "RestartCnt", "NumNodes", "NumCPUs", "TimeUsed", "EndTime", "Cluster",
           "Partition", "BatchFlag", "tres-alloc")  # fmt: skip
"""Columns of `_WIDTH` bytes. Two columns follow: AdminComment, which root writes; and Account, which can be
any text of the user where Slurm does not check accounts."""
_LEAD = len(_FIELDS) * _WIDTH


@dataclass(frozen=True)
class Start:
    """Slurm's data on one start of a job.

    `submitted_unix_s` differs between the starts of a job: a requeued job gets a new submit time when it has
    left its nodes. Files of this start are not older than `since_unix_s`. `address` names only this job,
    whereas the job's number could mean all tasks of an array. `admin_comment` is None if it is too long to be
    read. `fields` has all values from slurmctld, by squeue's names.
    """

    job: int
    uid: int
    submitted_unix_s: int
    since_unix_s: int
    is_running: bool
    address: str
    admin_comment: str | None = ""
    fields: Mapping[str, str] = field(default_factory=dict)

    def name(self, step: str) -> str:
        """Name of a step's profile in the spool."""
        return f"{self.stem}.{step}.h5"

    @property
    def stem(self) -> str:
        """Common prefix of the names of this start's files in the spool."""
        return f"{self.job}.{self.submitted_unix_s}"


def query_start(job: int, uid: int) -> Start:
    """Query slurmctld for a job that runs or has just ended.

    Raises `EnvironmentFault` if slurmctld does not answer, or does not have this job of that user.
    """
    fields = ",".join(f"{name}:{_WIDTH}" for name in _FIELDS)
    wanted = f"{fields},admin_comment:{COMMENT_WIDTH},Account:{_WIDTH}"
    return parse_start(
        ask(["squeue", "--noheader", "--states=all", "--jobs", str(job), "--Format", wanted]), job, uid
    )


def parse_start(answer: str, job: int, uid: int) -> Start:
    """The job in squeue's output. Raises `EnvironmentFault` if the job is not there."""
    # Columns have fixed widths in bytes, so a comment with line breaks cannot look like another job's row.
    raw = os.fsencode(answer)
    for begin in (0, *(found.end() for found in re.finditer(b"\n", raw))):
        lead, rest = raw[begin : begin + _LEAD], raw[begin + _LEAD :]
        row = {
            name: os.fsdecode(lead[i * _WIDTH : (i + 1) * _WIDTH]).strip() for i, name in enumerate(_FIELDS)
        }
        if len(lead) < _LEAD or b"\n" in lead or (row["JobID"], row["UserID"]) != (str(job), str(uid)):
            continue
        row["Account"] = os.fsdecode(rest[COMMENT_WIDTH : COMMENT_WIDTH + _WIDTH]).strip()
        comment = rest[:COMMENT_WIDTH].strip().removeprefix(b"(null)")  # squeue's text for no comment
        with contextlib.suppress(ValueError):
            return _start(row, None if len(comment) == COMMENT_WIDTH else os.fsdecode(comment))
    raise EnvironmentFault(f"slurmctld knows no job {job} of user {uid}, so nothing is signed")


def _start(row: Mapping[str, str], comment: str | None) -> Start:
    address = row["JobID"]
    if row["ArrayTaskID"].isdecimal():
        address = f"{row['ArrayJobID']}_{row['ArrayTaskID']}"
    elif row["ArrayTaskID"] != "N/A":
        raise ValueError(f"tasks {row['ArrayTaskID']} of a job array are several jobs")
    elif row["HetJobID"].isdecimal() and int(row["HetJobID"]):
        address = f"{row['HetJobID']}+{row['HetJobOffset']}"
    is_running = row["StateCompact"] in ("R", "S")
    # A requeued job's StartTime lies in the future.
    since = row["StartTime"] if is_running and row["StartTime"].isdecimal() else row["SubmitTime"]
    job, uid, submitted = (int(row[name]) for name in ("JobID", "UserID", "SubmitTime"))
    return Start(job, uid, submitted, int(since), is_running, address, comment, row)


def user_name(uid: int) -> str:
    """Name of a user, or the number if the user has no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
