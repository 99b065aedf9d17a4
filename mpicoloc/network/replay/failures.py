"""Why a simulation could not end, in one line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpicoloc.errors import DataError, EnvironmentFault, MpicolocError
from mpicoloc.network.replay import native
from mpicoloc.network.replay.job import Job
from mpicoloc.network.replay.network import SimulatedNetwork

_CALLS = {
    native.RP_END_PROGRAM: "end of program",
    native.RP_COMPUTE: "compute",
    native.RP_SEND: "send",
    native.RP_ISEND: "isend",
    native.RP_RECV: "receive",
    native.RP_IRECV: "ireceive",
    native.RP_WAIT: "wait",
    native.RP_WAITALL: "waitall",
    native.RP_LOOP: "loop",
    native.RP_END: "end of loop",
    native.RP_MARK: "mark",
}
_N_SHOWN = 4


def explain(result: Any, jobs: Sequence[Job], network: SimulatedNetwork) -> MpicolocError:
    """The error for a status other than RP_DONE."""
    when = f"at {result.now_ps / 1e12:.9f} s of simulated time"
    reports = [result.reports[i] for i in range(min(result.n_reports, native.RP_N_REPORTS))]
    if result.status == native.RP_E_MEMORY:
        return EnvironmentFault(f"simulation: no more memory {when}, with {result.peak_bytes} bytes in use")
    if result.status == native.RP_E_UNMATCHED:
        return DataError(
            f"{_job(reports, jobs)} ended {when} with {result.n_reports} unmatched messages: "
            f"{_shown(reports, _message)}: is the trace complete?"
        )
    if result.status == native.RP_E_PROGRAM_DEADLOCK:
        return DataError(
            f"{_job(reports, jobs)}: {result.n_reports} ranks wait for ever {when}: {_cycle(reports)}: is "
            "the trace complete, or the eager limit smaller than the program relies on?"
        )
    if result.status == native.RP_E_NETWORK_DEADLOCK:
        links = [network.link_name(result.cycle[i]) for i in range(result.n_cycle)]
        return DataError(
            f"network deadlock {when}: packets wait for each other's buffers around {'; '.join(links[:8])}"
            f"{' ...' if len(links) > 8 else ''}: use routes without cycles"
        )
    if result.status == native.RP_E_ROUTE:
        return DataError(f"routes: a packet came {when} to a switch whose table leads nowhere or in a circle")
    report = reports[0]
    call = _CALLS.get(report.kind, f"unknown kind {report.kind}")
    return DataError(
        f"job {jobs[report.job].name}: operation {report.i_op} of rank {report.rank} is impossible: {call}, "
        f"peer {report.peer}, tag {report.tag}, {report.n_bytes} bytes"
    )


def _job(reports: Sequence[Any], jobs: Sequence[Job]) -> str:
    return f"job {jobs[reports[0].job].name}" if reports else "a job"


def _shown(reports: Sequence[Any], words: Any) -> str:
    more = f" and {len(reports) - _N_SHOWN} more" if len(reports) > _N_SHOWN else ""
    return "; ".join(words(report) for report in reports[:_N_SHOWN]) + more


def _message(report: Any) -> str:
    ends = ("from", "by") if report.kind in (native.RP_RECV, native.RP_IRECV) else ("to", "by")
    return (
        f"{_CALLS[report.kind]} {ends[1]} rank {report.rank} {ends[0]} {_peer(report.peer)}, "
        f"tag {report.tag}, {report.n_bytes} bytes, operation {report.i_op}, "
        f"posted at {report.t_ps / 1e12:.9f} s"
    )


def _peer(peer: int) -> str:
    return "any rank" if peer < 0 else f"rank {peer}"


def _wait(report: Any) -> str:
    call = _CALLS.get(report.kind, "?")
    return (
        f"rank {report.rank} in {call} for {_peer(report.peer)} (tag {report.tag}, operation {report.i_op})"
    )


def _cycle(reports: Sequence[Any]) -> str:
    """The ranks that wait in a circle, if there is one among those reported, else the first of them."""
    by_rank = {report.rank: report for report in reports}
    for start in reports:
        path: list[int] = []
        rank = start.rank
        while rank in by_rank and rank not in path:
            path.append(rank)
            rank = by_rank[rank].peer
        if rank in path:
            circle = path[path.index(rank) :]
            return "in a circle, " + _shown([by_rank[i] for i in circle], _wait)
    return _shown(reports, _wait)
