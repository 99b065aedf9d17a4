"""The tables that come from a node file: what the node's agent saw of the job and its company."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from mpicoloc.core import cpu_list
from mpicoloc.core.tables import COUNT_WINDOWS, Table, dtype, table
from mpicoloc.pmpi import contract
from mpicoloc.profile.assembly import machine

_METERS = {
    contract.MC_METER_NONE: "none",
    contract.MC_METER_IPC: "ipc",
    contract.MC_METER_BURST: "burst",
    contract.MC_METER_LOOP: "loop",
    contract.MC_METER_COUNT: "count",
}
_MAX_LIST_BYTES = dtype("nodes")["cpus"].itemsize


def foreign_jobs(node: np.void) -> list[str]:
    """A note on jobs of other versions that run on this node as the job ends."""
    if node["meter"] == contract.MC_METER_NONE or not contract.n_foreign():
        return []
    return [
        "jobs of another version of mpicoloc ran on a node at the end: they do not pause for this job, "
        "and what they cost it is not in its slowdown"
    ]


def nodes(hostname: str, node: np.void | None, cpus: Iterable[int]) -> Table:
    """One row, or none if nobody watched: an empty row would say that the job never had company."""
    if node is None:
        return table("nodes")
    listed = cpu_list.format_cpus(cpus)
    columns: dict[str, list[Any]] = {
        "hostname": [hostname],
        "meter": [_METERS.get(int(node["meter"]), "none").encode()],
        "meter_reason": [contract.text(node["meter_reason"])],
        "entry": [contract.text(node["entry"])],
        "n_hits": [int(node["n_hits"]) + int(node["counts"]["n_passes"])],
        "counting_s": [int(node["hits_ns"]) * 1e-9 + _counting_places_s(node["counts"])],
        "watched_s": [(int(node["t_last"]) - int(node["t_open"])) * 1e-9],
        "shared_s": [int(node["shared_ns"]) * 1e-9],
        "n_pauses": [int(node["n_pauses"])],
        "paused_s": [int(node["paused_ns"]) * 1e-9],
        "n_refused": [int(node["n_refused"])],
        "shutter_duration_s": [int(node["shutter_duration_ns"]) * 1e-9],
        "shutter_period_s": [int(node["shutter_period_ns"]) * 1e-9],
        "n_taken": [int(node["n_shutters"])],
        **_clock(node["common"]),
        **{name: [value] for name, value in machine.node().items()},
        # A list that is cut off would be one of other processors.
        "cpus": [listed if len(listed) <= _MAX_LIST_BYTES else ""],
        "bubble_reason": [contract.text(node["bubble_reason"])],
    }
    return table("nodes", columns)


def _counting_places_s(counts: np.void) -> float:
    """Time of the job's threads that passes and samples took, without pauses for changes of code."""
    return float(counts["n_passes"] * counts["pass_ns"] + counts["sampled_ns"]) * 1e-9


def _clock(common: np.void) -> dict[str, list[float]]:
    agreed = common["state"] == contract.MC_COMMON_ON
    columns = {"clock_offset_s": "clock_offset_ns", "clock_bound_s": "clock_worst_ns"}
    return {name: [float(common[field]) * 1e-9 if agreed else np.nan] for name, field in columns.items()}


_AS_THEY_ARE = (
    "busy_frac", "waited_frac", "since_ns", "since_bytes", "before_bytes", "bubble_level", "probe_slowdown",
)  # fmt: skip
"""Numbers of a shutter with the same name in shared memory."""


def shutters(node: np.void | None) -> Table:
    """The shutters taken for the job, in the order of time."""
    if node is None or not node["n_shutters"]:
        return table("shutters")
    rows = node["shutters"][: int(node["n_shutters"])]
    rows = rows[np.argsort(rows["t0"], kind="stable")]
    columns = {
        "epoch": rows["epoch"],
        "t0_ns": rows["t0"],
        "t1_ns": rows["t1"],
        "verdict": rows["verdict"],
        "common": rows["i_common"],
        "n_corunners": rows["n_corunners"],
        "moved_ns": rows["moved_ns"],
        "entry": rows["entry"],
    }
    for when in ("before", "during", "after"):
        for what in ("instructions", "cycles"):
            columns[f"{when}_{what}"] = rows[when][what]
            columns[f"{when}_outside_{what}"] = rows[f"outside_{when}"][what]
        columns[f"{when}_hits"] = rows[f"hits_{when}"]["n"]
        columns[f"{when}_window_ns"] = rows[f"hits_{when}"]["window_ns"]
    for when in ("begin", "end"):
        edge = rows[f"edge_{when}"]
        columns[f"{when}_hits"] = edge["n"]
        for what in ("window_ns", "far", "mean", "inside", "outside"):
            columns[f"{when}_{what}"] = edge[what]
    for name in _AS_THEY_ARE:
        columns[name] = rows[name]
    for i, when in enumerate(COUNT_WINDOWS):
        columns[f"{when}_samples"] = rows["n_samples"][:, i]
        columns[f"{when}_near"] = rows["n_near"][:, i]
    return table("shutters", columns)


def bubble_levels(node: np.void | None) -> Table:
    """What the calibration of the node's bubbles says, if there is one."""
    if node is None or not node["probe_curve"]["slowdown"].all():
        return table("bubble_levels")
    curve = node["probe_curve"]
    columns = {"level": np.arange(len(curve["slowdown"])), "probe_slowdown": curve["slowdown"]}
    return table("bubble_levels", columns | {f"probe_{end}": curve[end] for end in ("low", "high")})


def corunners(node: np.void | None) -> Table:
    """The jobs that were there as well."""
    if node is None or not node["n_corunners"]:
        return table("corunners")
    rows = node["corunners"][: int(node["n_corunners"])]
    overlap_ns = np.maximum(rows["t_last"].astype(np.int64) - rows["t_first"].astype(np.int64), 0)
    return table("corunners", {"job_id": rows["job_id"], "overlap_s": overlap_ns * 1e-9})
