"""Simulate a log with AccaSim 1.1.3; run by a Python that has it, without mpicoloc.

    python in_accasim.py LOG N_NODES N_CORES fcfs|easy|easy-mended OUT.json

A processor of LOG is a core. OUT has when each job began, s after the log's begin, by its number, and the
time that the simulation took, s. `easy-mended` is AccaSim's engine with the three rules of EASY that its own
class leaves out: see `Mended`. On one node of N cores AccaSim is faster than on N nodes of one.
"""

import collections
import collections.abc
import json
import sys
import tempfile
import time
from pathlib import Path

collections.Mapping = collections.abc.Mapping  # AccaSim imports it from where Python 3.9 had it last

from accasim.base.allocator_class import FirstFit  # noqa: E402
from accasim.base.scheduler_class import EASYBackfilling, FirstInFirstOut  # noqa: E402
from accasim.base.simulator_class import Simulator  # noqa: E402

BEGIN_S = 1000
"""Of AccaSim's clock, in which 0 means that it does not go yet."""


class Mended(EASYBackfilling):
    """EASY as Mu'alem and Feitelson 2001 have it.

    The first job of the queue is tried at each event, not only from its reserved time on; its reservation is
    made anew each time; and a job that outlasts it begins only on nodes that are spare then.
    """

    def scheduling_method(self, cur_time, queued_jobs, es_dict):
        """One pass over the queue."""
        if not self.allocator_rm_set:
            self.nonauto_allocator.set_resource_manager(self.resource_manager)
            self.allocator_rm_set = True
        self.nonauto_allocator.set_resources(self.resource_manager.current_availability)
        plan, blocked = self._try_fifo_allocation(queued_jobs, cur_time)
        if blocked is None:
            return plan, []
        plan = plan[: blocked + 1]
        reserved_s, n_spare = self._reservation(cur_time, queued_jobs[blocked], plan[:-1], es_dict)
        for job in queued_jobs[blocked + 1 :]:
            is_short = cur_time + job.expected_duration <= reserved_s
            row = None, job.id, []
            if is_short or job.requested_nodes <= n_spare:
                row = self.nonauto_allocator.allocating_method(job, cur_time, skip=True)
                n_spare -= 0 if is_short or not row[-1] else job.requested_nodes
            plan.append(row)
        return plan, []

    def _reservation(self, cur_time, job, begun, es_dict):
        """When the job can begin at the latest, and how many nodes are spare then."""
        running = [(es_dict[i].start_time, es_dict[i]) for i in self.resource_manager.current_allocations]
        running += [(cur_time, es_dict[i]) for _, i, _ in begun]
        ends = sorted((start + one.expected_duration, one.requested_nodes) for start, one in running)
        n_free = sum(node["core"] for node in self.nonauto_allocator.avl_resources.values())
        reserved_s = None
        for end_s, n_nodes in ends:
            if reserved_s is not None and end_s > reserved_s:
                break
            n_free += n_nodes
            if reserved_s is None and n_free >= job.requested_nodes:
                reserved_s = end_s
        return reserved_s, n_free - job.requested_nodes


def noted(scheduler, starts):
    """The scheduler, which writes down when jobs begin."""
    schedule = scheduler.schedule

    def scheduled(cur_time, es_dict, es):
        plan, rejected = schedule(cur_time, es_dict, es)
        starts.update((job, when - BEGIN_S) for when, job, nodes in plan if nodes)
        return plan, rejected

    scheduler.schedule = scheduled
    return scheduler


def main(log, n_nodes, n_cores, order, out):
    schedulers = {"fcfs": FirstInFirstOut, "easy": EASYBackfilling, "easy-mended": Mended}
    starts = {}
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "machine.json"
        machine = {
            "groups": {"node": {"core": int(n_cores)}},
            "resources": {"node": int(n_nodes)},
            "equivalence": {"processor": {"core": 1}},
            "start_time": BEGIN_S,
        }
        config.write_text(json.dumps(machine))
        simulator = Simulator(
            log, str(config), noted(schedulers[order](FirstFit()), starts), scheduling_output=False,
            statistics_output=False, show_statistics=False, RESULTS_FOLDER_PATH=folder, LOG_LEVEL="ERROR",
        )  # fmt: skip
        begin_s = time.perf_counter()
        simulator.start_simulation()
        wall_s = time.perf_counter() - begin_s
    Path(out).write_text(json.dumps({"starts_s": starts, "wall_s": wall_s}))


if __name__ == "__main__":
    main(*sys.argv[1:])
