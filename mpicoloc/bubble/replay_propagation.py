"""`mpicoloc replay --propagation`: how a program suffers if bubbles run on some of its nodes, by replay."""

from __future__ import annotations

import argparse

from mpicoloc import messages
from mpicoloc.bubble import propagation_flags
from mpicoloc.cli.memory import bounded
from mpicoloc.errors import UsageError
from mpicoloc.replay import job_flags
from mpicoloc.replay import scene as replay_scene

_CURVES = (
    "curve of the program on one node, which says how much longer a disturbed node computes; its policy is "
    "put there"
)
_OF_REPLAY = (
    "out", "perfetto", "paraver", "window_s", "figures", "format", "against", "stretch", "sweep",
    "processes", "no_base",
)  # fmt: skip
"""Flags whose results `--propagation` does not have."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the matrix."""
    propagation_flags.add_arguments(parser, _CURVES)


def check_none(args: argparse.Namespace) -> None:
    """Refuse flags of the matrix where none is wanted."""
    for flag in ("curves", "name", *propagation_flags.OF_FILLING):
        if getattr(args, flag) is not None:
            raise UsageError(
                f"--{flag.replace('_', '-')} is of --propagation, which is not given: leave it out"
            )


@bounded
def run(args: argparse.Namespace) -> int:
    """Replay the job for each setting that the matrix needs."""
    import numpy as np

    from mpicoloc import config
    from mpicoloc.bubble import curves_file, replayed_runs

    for flag in _OF_REPLAY:
        if getattr(args, flag):
            raise UsageError(
                f"--{flag.replace('_', '-')} does not go with --propagation: leave one of both out"
            )
    if args.curves is None:
        raise UsageError("--propagation needs the program's curve on one node: give --curves FILE")
    if (n_jobs := job_flags.n_jobs(args)) != 1:
        raise UsageError(f"--propagation is of one job, got {n_jobs}: give one trace")
    propagation_flags.check(args)
    scene = replay_scene.of(args)
    for note in scene.notes:
        messages.note(note)
    job = scene.jobs[0]
    name = args.name or job.name
    curve = curves_file.curve_of(args.curves, name)
    profile = replayed_runs.replayed_profile(scene.network, job, curve, scene.settings)
    uneven = replayed_runs.replayed_uneven(scene.network, job, curve, scene.settings)
    rng = np.random.default_rng(config.parse_whole("--random-state", args.random_state, 0))
    return propagation_flags.run(args, name, job.n_hosts, profile, uneven, rng)
