"""The table of a node's ranks: how each ended, how long it ran, and what it used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpicoloc.core.profile import COLUMNS, Table, table
from mpicoloc.pmpi import contract
from mpicoloc.profile import machine

_STATES = {
    contract.MC_RANK_INIT: "lost",
    contract.MC_RANK_RUNNING: "running",
    contract.MC_RANK_FINALIZING: "finalized",
    contract.MC_RANK_ABORTED: "aborted",
    contract.MC_RANK_EXITED: "exited",
}


def _end_ns(segment: np.void, node: np.void | None) -> int:
    """End of a rank: MPI_Finalize, else its last sign of life."""
    if segment["t_finalize"]:
        return int(segment["t_finalize"])
    signs = [int(segment["t_last"]), int(segment["t_init"]), contract.latest_call_ns(segment)]
    if node is not None:
        signs.append(int(node["t_last"]))  # a rank that computes makes no calls: the agent saw it later
    return max(signs)


def is_running(segment: np.void) -> bool:
    """Whether the process of a segment's rank lives, and is not another one of the same number."""
    return machine.stat_fields(segment["pid"])[19:20] == [str(segment["pid_start_ticks"])]


def _state(segment: np.void) -> str:
    state = _STATES.get(int(segment["state"]), "lost")
    return state if state != "running" or is_running(segment) else "lost"


def ranks(segments: Sequence[np.void], node: np.void | None) -> Table:
    """The table `ranks` of one node; `node` is None where no agent watched the job."""
    t_first = min(int(segment["t_init"]) for segment in segments)
    columns: dict[str, list[Any]] = {
        "rank": [int(s["world_rank"]) for s in segments],
        "pid": [int(s["pid"]) for s in segments],
        "n_cores": [int(s["n_cores"]) for s in segments],
        "state": [_state(s).encode() for s in segments],
        "init_s": [(int(s["t_init"]) - t_first) * 1e-9 for s in segments],
        "wall_s": [(_end_ns(s, node) - int(s["t_init"])) * 1e-9 for s in segments],
    }
    known = {column.name for column in COLUMNS["ranks"]}
    for counter in contract.counters():
        if counter.name in known:
            columns[counter.name] = [
                int(s["counters"][counter.name])
                + sum(int(lane["head"]["counters"][counter.name]) for lane in contract.lanes(s))
                for s in segments
            ]
    used = [_used(s) for s in segments]
    return table("ranks", columns | {name: [row[name] for row in used] for name in used[0]})


def _used(segment: np.void) -> dict[str, float]:
    """What a rank used between MPI_Init and MPI_Finalize, or so far.

    How long it waits in these two, asleep for the most part, is a matter of launcher and keeper.
    """
    pid = int(segment["pid"]) if is_running(segment) else 0
    before = machine.told(segment["used_at_init"])
    has_ended = bool(segment["used_at_finalize"]["is_known"])
    now = machine.told(segment["used_at_finalize"]) if has_ended else machine.usage(pid)
    used = {name: now[name] - before[name] for name in machine.USED}
    used["cpu_s"] = float(np.maximum(used["cpu_s"], 0.0))  # others tell it in whole ticks
    # Threads that have ended are not among those that others see: less than before says nothing.
    used = {name: value if value >= 0 else np.nan for name, value in used.items()}
    return used | {"peak_rss_bytes": machine.peak_rss_bytes(pid)}
