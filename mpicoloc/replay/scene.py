"""What `mpicoloc replay` simulates, as its flags describe it, and the simulation."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mpicoloc.replay import job_flags, network_flags

if TYPE_CHECKING:
    from mpicoloc.replay.experiment import Experiment, PlacedJob
    from mpicoloc.replay.fabrics import Hardware
    from mpicoloc.replay.network import SimulatedNetwork
    from mpicoloc.replay.simulate import Settings

_SHORTEST_WINDOW_S = 1e-7


@dataclass(frozen=True)
class Scene:
    """Jobs on a network, ready to be simulated.

    Parameters
    ----------
    network : SimulatedNetwork
    host_bps : float
        Rate of the hosts' links, bytes/s.
    hardware : Hardware
    settings : Settings
    jobs : list of PlacedJob
    """

    network: SimulatedNetwork
    host_bps: float
    hardware: Hardware
    settings: Settings
    jobs: list[PlacedJob]

    @property
    def notes(self) -> list[str]:
        """What a reader of the results should know of the jobs, each once."""
        return list(dict.fromkeys(note for job in self.jobs for note in job.programs.notes))


def of(args: argparse.Namespace, read: job_flags.Read | None = None) -> Scene:
    """What the flags describe; `read` reads a trace, see `replay_jobs.placed`."""
    n_jobs = job_flags.n_jobs(args)
    fabric = network_flags.fabric_of(args)
    hardware = network_flags.hardware_of(args, n_jobs)
    settings = network_flags.settings_of(args)
    jobs = job_flags.placed(args, fabric, network_flags.lanes_of_jobs(args, n_jobs), read)
    network = network_flags.network_of(args, fabric, hardware)
    return Scene(network, fabric.topology.capacity_bps[0], hardware, settings, jobs)


def check(args: argparse.Namespace) -> None:
    """Refuse what is wrong in flags and files, as far as that is known without reading the jobs' traces."""
    n_jobs = job_flags.n_jobs(args)
    fabric = network_flags.fabric_of(args)
    hardware = network_flags.hardware_of(args, n_jobs)
    lanes = network_flags.lanes_of_jobs(args, n_jobs)
    if args.files:
        job_flags.check(args, fabric)
    else:
        job_flags.placed(args, fabric, lanes)
    network_flags.network_of(args, fabric, hardware)


def simulate(args: argparse.Namespace, scene: Scene) -> tuple[Experiment, float]:
    """Every run, and how long the last one took, s."""
    from mpicoloc.replay import experiment, timeline

    network, settings, jobs = scene.network, scene.settings, scene.jobs
    watched = replace(settings, window_s=_window_s(args))
    has_marks = not (args.figures is args.perfetto is args.paraver is None)
    seen = [replace(job, programs=timeline.marked(job.programs)) for job in jobs] if has_marks else jobs
    base = [
        None if args.no_base else experiment.simulate_base(job, scene.host_bps, scene.hardware, settings)
        for job in jobs
    ]
    began_s = time.monotonic()
    if len(jobs) == 1:
        sharing = experiment.simulate_alone(network, seen[0], watched)
        alone = [sharing]
    else:
        alone = [experiment.simulate_alone(network, job, settings) for job in jobs]
        began_s = time.monotonic()
        sharing = experiment.simulate_sharing(network, seen, watched)
    wall_s = time.monotonic() - began_s
    return experiment.Experiment(tuple(jobs), network, tuple(base), tuple(alone), sharing), wall_s


def _window_s(args: argparse.Namespace) -> float:
    """Length of the first windows: where nobody chose it, so short that the simulator joins them."""
    if args.window_s is not None:
        return float(args.window_s)
    return 0.0 if args.out is args.figures is None else _SHORTEST_WINDOW_S
