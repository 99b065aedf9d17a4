"""How long one look at a queue takes, by its length: to read Slurm's answer, and to decide.

  python benchmarks/schedule/steering.py [--json] [--jobs 2000 10000 50000] [--nodes 100] [--runs 3]

Every node has a job that runs, a tenth of the waiting jobs wants a certain node, and nothing is known of
half of them. Pairs are taken in the order of the queue: planning is measured by
benchmarks/schedule/pairing.py.
Times are of processor, medians, without squeue itself.
"""

import argparse
import json
import statistics
import sys
import time

from mpicoloc.core.batch_system import PENDING, RUNNING
from mpicoloc.pairing.policies import Group
from mpicoloc.pairing.sharing_plan import Partitions, decide
from mpicoloc.slurm import client

NOW_S = 1.8e9


def main():
    args = arguments()
    rows = [row(n, args.nodes, args.runs) for n in args.jobs]
    if args.json:
        json.dump(rows, sys.stdout, indent=1)
        print()
        return
    print("| waiting jobs | answer | read | decide |")
    print("| ---: | ---: | ---: | ---: |")
    for each in rows:
        size = f"{each['answer_bytes'] / 1e6:.3g} MB"
        print(f"| {each['n_jobs']:,} | {size} | {each['read_s']:.2g} s | {each['decide_s']:.2g} s |")


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="a list of rows")
    parser.add_argument("--jobs", type=int, nargs="+", default=[2000, 10000, 50000])
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--runs", type=int, default=3)
    return parser.parse_args()


def row(n_jobs, n_nodes, n_runs):
    jobs, nodes = answers(n_jobs, n_nodes)
    read_s, decide_s = [], []
    for _ in range(n_runs):
        started_s = time.process_time()
        now = client.parsed(json.loads(jobs), json.loads(nodes), NOW_S)
        read_s.append(time.process_time() - started_s)
        started_s = time.process_time()
        actions = decide(now, Partitions("whole", "shared"), two_by_two, {}, lambda job, others: 2.0)
        decide_s.append(time.process_time() - started_s)
        assert actions
    print(f"{n_jobs:,} jobs: {len(actions)} decisions", file=sys.stderr)
    median = {"read_s": statistics.median(read_s), "decide_s": statistics.median(decide_s)}
    return {"n_jobs": n_jobs, "n_nodes": n_nodes, "answer_bytes": len(jobs), **median}


def answers(n_jobs, n_nodes):
    """As squeue and sinfo say it, with the fields that are read."""
    given = dict.fromkeys(
        ("dependency", "excluded_nodes", "resv_name", "features", "licenses", "tres_per_node"), ""
    )
    given |= dict.fromkeys(("tres_per_job", "tres_per_task", "tres_per_socket", "array_task_string"), "")
    given |= {"het_job_id": 0, "array_job_id": 0, "user_name": "ada", "partition": "whole", "node_count": 1}
    given |= {"tasks": 4, "cpus": 4, "time_limit": 60, "max_nodes": 0, "admin_comment": "", "priority": 1}
    given |= {"memory_per_node": None, "memory_per_cpu": None}
    rows = []
    for number in range(n_nodes + n_jobs):
        runs, is_bound = number < n_nodes, number % 10 == 0
        rows.append(
            {
                **given,
                "job_id": number + 1,
                "name": f"job{number % 50}",
                "job_state": RUNNING if runs else PENDING,
                "nodes": f"n{number}" if runs else "",
                "required_nodes": f"n{number % n_nodes}" if is_bound and not runs else "",
                "submit_time": NOW_S - 1e5 + number,
                "start_time": NOW_S - 60 - number if runs else 0,
                "state_reason": "None" if runs else "Priority",
            }
        )
    size = {"cpus": 4, "real_memory": 1000, "partitions": ["whole", "shared"]}
    nodes = [{"name": f"n{k}", "state": "allocated", "state_flags": [], **size} for k in range(n_nodes)]
    return json.dumps({"jobs": rows}), json.dumps({"nodes": nodes})


def two_by_two(leaders, waiting):
    """The waiting jobs that are known, two by two, and the others alone."""
    n, half = len(leaders), len(waiting) // 2
    pairs = [(n + i, n + i + 1) for i in range(0, half - 1, 2)]
    return [
        Group(pair, 100.0) for pair in [*pairs, *((n + i,) for i in range(half - half % 2, len(waiting)))]
    ]


if __name__ == "__main__":
    main()
