r"""Replay jobs on a fat-tree packet by packet, and tell how much longer they take because of each other.

Each job comes from its own profile with a trace of every call (`mpicoloc run --trace all`), or from a pattern.
It is simulated with all of its hosts on one switch (T_base), on the network alone (T_alone), and there with
the other jobs (T_sharing), as in Jokanovic 2014, chapters 2 and 5. Shorter jobs start again until all have run
once; the first run counts.

  mpicoloc replay one.h5 two.h5 --topology 'XGFT(2;16,8;1,4)' --placement F8
  mpicoloc replay --pattern incast --hosts 16 --bytes 64KiB \
      --topology 'XGFT(2;8,4;1,4)' --link-rate 100Gbit/s
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING

from mpicoloc.cli import replay_jobs, replay_network
from mpicoloc.cli.memory import bounded
from mpicoloc.core import messages

if TYPE_CHECKING:
    from mpicoloc.network.replay.experiment import Experiment, PlacedJob
    from mpicoloc.network.replay.fabrics import Hardware
    from mpicoloc.network.topology.fabric import Fabric


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    replay_jobs.add_arguments(parser)
    replay_network.add_arguments(parser)
    parser.add_argument("--no-base", action="store_true", help="leave out the runs on one switch")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


@bounded
def run(args: argparse.Namespace) -> int:
    """Simulate and print."""
    from mpicoloc.report.terminal import replay as report

    fabric = replay_network.fabric_of(args)
    n_jobs = replay_jobs.n_jobs(args)
    hardware = replay_network.hardware_of(args, n_jobs)
    jobs = replay_jobs.placed(args, fabric, replay_network.lanes_of_jobs(args, n_jobs))
    for note in dict.fromkeys(note for job in jobs for note in job.programs.notes):
        messages.note(note)
    experiment, wall_s = _simulated(args, fabric, hardware, jobs)
    if args.json:
        found = report.as_json(experiment, wall_s)
        print(json.dumps(found, indent=2, allow_nan=False))
    else:
        report.show(experiment, wall_s)
    sys.stdout.flush()
    return 0


def _simulated(
    args: argparse.Namespace, fabric: Fabric, hardware: Hardware, jobs: list[PlacedJob]
) -> tuple[Experiment, float]:
    """Every run, and how long the last one took."""
    from mpicoloc.network.replay import experiment

    network, settings = replay_network.network_of(args, fabric, hardware), replay_network.settings_of(args)
    host_bps = fabric.topology.capacity_bps[0]
    base = [
        None if args.no_base else experiment.simulate_base(job, host_bps, hardware, settings) for job in jobs
    ]
    began_s = time.monotonic()
    alone = [experiment.simulate_alone(network, job, settings) for job in jobs]
    if len(jobs) == 1:
        sharing = alone[0]
    else:
        began_s = time.monotonic()
        sharing = experiment.simulate_sharing(network, jobs, settings)
    wall_s = time.monotonic() - began_s
    return experiment.Experiment(tuple(jobs), network, tuple(base), tuple(alone), sharing), wall_s
