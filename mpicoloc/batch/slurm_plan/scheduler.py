"""Settings of Slurm's scheduler for each order of the queue."""

from __future__ import annotations

from mpicoloc.batch.order import Priority
from mpicoloc.batch.slurm_plan.demand import Demand

_WEIGHT = 100_000
_WINDOW_MIN = (1440, 43200)
"""Least (Slurm's default) and most minutes that its backfill looks ahead."""
_DEPTH = (500, 1_000_000)
"""Least (Slurm's default) and most waiting jobs that it looks at."""


def lines(order: str, demand: Demand) -> list[str]:
    """Lines of slurm.conf for an order of `batch.order.ORDERS`.

    Notes
    -----
    slurm.conf(5) of Slurm 22.05: sched/builtin lets nobody overtake in a partition; sched/backfill keeps
    nodes for each waiting job, with ``bf_job_part_count_reserve=1`` for the first of each partition alone.
    """
    if order == "fcfs":
        return ["SchedulerType=sched/builtin", "PriorityType=priority/basic"]
    minutes = min(max(-(-int(demand.longest_s) // 60), _WINDOW_MIN[0]), _WINDOW_MIN[1])
    words = [
        f"bf_window={minutes}",
        f"bf_max_job_test={min(max(demand.deepest_queue, _DEPTH[0]), _DEPTH[1])}",
        "bf_continue",
        *(["bf_job_part_count_reserve=1"] if order != "conservative" else []),
    ]
    found = ["SchedulerType=sched/backfill", f"SchedulerParameters={','.join(words)}"]
    return [*found, *(_multifactor() if order == "priority" else ["PriorityType=priority/basic"])]


def _multifactor() -> list[str]:
    rule = Priority()
    return [
        "PriorityType=priority/multifactor",
        f"PriorityWeightAge={round(rule.age_weight * _WEIGHT)}",
        f"PriorityWeightJobSize={round(rule.size_weight * _WEIGHT)}",
        f"PriorityMaxAge={round(rule.max_age_s / 86400)}-0",
        "PriorityFavorSmall=NO",
    ]


def differences(order: str, demand: Demand) -> list[str]:
    """What Slurm does otherwise than the simulated order."""
    found = []
    if order == "fcfs":
        return ["sched/builtin keeps the order of each partition by itself."]
    if order == "conservative":
        found.append("Slurm makes its reservations anew every bf_interval (30 s), not at each event.")
    if order == "priority":
        found.append(
            "priority/multifactor counts processors beside nodes in the size of a job, and warns of fair "
            "shares without slurmdbd, which are not used here."
        )
    if demand.longest_s > 60 * _WINDOW_MIN[1]:
        found.append("Slurm plans 30 days ahead at most, and the log has longer time limits.")
    return found
