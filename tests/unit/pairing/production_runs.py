"""Runs of jobs in production, as a scheduler's history has them."""

from mpicoloc.core.profile import Estimate
from mpicoloc.core.slowdown import Machine, Run, moments

MACHINE = Machine("EPYC", 64, 2.0**38)


def run(name, command="a", start=0.0, beside=(), wall_s=100.0, slowdown=None, shared_s=None, **changes):
    shared = sum(s for _, s in beside) if shared_s is None else shared_s
    estimate = (
        None if slowdown is None else Estimate(slowdown, slowdown - 0.1, slowdown + 0.1, 40, "1", "burst")
    )
    facts = {
        "id": name,
        "command": command,
        "n_ranks": 2,
        "n_nodes": 1,
        "n_cores": 2,
        "start_unix_s": start,
        "wall_s": wall_s,
        "solo_s": wall_s / (slowdown or 1),
        "shared_s": shared,
        "was_alone": not shared,
        "partial": False,
        "slowdown": estimate,
        "co_runners": tuple(beside),
        "machine": MACHINE,
        "seen": {"ipc": moments([1.0 if command == "a" else 2.0])},
    }
    return Run(**{**facts, **changes})
