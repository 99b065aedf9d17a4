r"""Replay jobs on a fat-tree packet by packet, and tell how much longer they take because of each other.

Each job comes from its own profile with a trace of every call (`mpicoloc run --trace all`), or from a
pattern. It is simulated with all of its hosts on one switch (T_base), on the network alone (T_alone), and
there with the other jobs (T_sharing), as in Jokanovic 2014, chapters 2 and 5. Shorter jobs start again until
all have run once; the first run counts.

  mpicoloc replay one.h5 two.h5 --topology 'XGFT(2;16,8;1,4)' --placement F8
  mpicoloc replay --pattern incast --hosts 16 --bytes 64KiB \
      --topology 'XGFT(2;8,4;1,4)' --link-rate 100Gbit/s
  mpicoloc replay one.h5 two.h5 --topology 'XGFT(2;16,8;1,8)' --out sweep \
      --sweep slimming 8 4 2 --sweep placement F8 RF

With --propagation: how much longer one job takes if bubbles run on some of its nodes (Han et al. 2016,
section 3.2), from the trace and the program's curve on one node.

  mpicoloc replay one.h5 --topology 'XGFT(2;16,8;1,4)' --curves curves.csv \
      --propagation matrices.csv
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mpicoloc import messages
from mpicoloc.bubble import propagation_verb
from mpicoloc.cli import arguments
from mpicoloc.cli.arguments import bounded
from mpicoloc.errors import UsageError
from mpicoloc.job.sweep import check_single
from mpicoloc.replay import flags, sweep

if TYPE_CHECKING:
    from mpicoloc.replay.experiment import Experiment, PlacedJob


def read(path: str) -> tuple[list[tuple[str, int]], float]:
    """What another replay printed with ``--json``: each job and its hosts, and host seconds lost.

    Raises `UsageError` if it cannot be read, or is no such result.
    """
    try:
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
        lost = result["j_inter_host_s"]
        if isinstance(lost, bool) or not math.isfinite(lost):
            raise ValueError(lost)
        return [(str(job["name"]), int(job["n_hosts"])) for job in result["jobs"]], float(lost)
    except OSError as error:
        raise UsageError(f"--against {path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UsageError(
            f"--against {path} is no output of mpicoloc replay --json: give what it printed under the other "
            "policy"
        ) from None


def _check_alike(path: str, before: Sequence[tuple[str, int]], jobs: Sequence[PlacedJob]) -> None:
    now = [(job.name, job.n_hosts) for job in jobs]
    if sorted(now) != sorted(before):
        raise UsageError(
            f"--against {path} is of jobs {_words(before)}, and these are {_words(now)}: give a "
            "result of the same jobs on as many hosts"
        )


def _words(jobs: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{name} (hosts: {n_hosts})" for name, n_hosts in jobs) or "none"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    flags.add_job_flags(parser)
    flags.add_network_flags(parser)
    parser.add_argument(
        "--out", metavar="FOLDER", help="write tables of the result to this folder as Parquet"
    )
    parser.add_argument("--perfetto", metavar="FILE", help="write the simulated calls for ui.perfetto.dev")
    parser.add_argument("--paraver", metavar="FILE", help="write the simulated calls as .prv, .pcf and .row")
    parser.add_argument(
        "--window-s",
        type=arguments.positive,
        metavar="S",
        help="length of windows of links (256 at most, so chosen)",
    )
    arguments.add_figures(parser, "contention, links over time and ranks")
    parser.add_argument("--no-base", action="store_true", help="leave out the runs on one switch")
    parser.add_argument(
        "--against",
        metavar="FILE",
        help="output of --json under another policy, for E(P): how much less is lost",
    )
    sweep.add_arguments(parser)
    propagation_verb.add_replay_flags(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Simulate and print."""
    if args.propagation is not None:
        from mpicoloc.bubble.propagation_runs import run_replay

        return run_replay(args)
    propagation_verb.refuse_matrix_flags(args)
    if args.sweep is not None:
        return sweep.run(args)
    check_single(args)
    return _run_one(args)


@bounded
def _run_one(args: argparse.Namespace) -> int:
    from mpicoloc.replay import report, scene

    formats = arguments.formats_of(args)
    _check_outputs(args)
    before, before_host_s = ([], None) if args.against is None else read(args.against)
    staged = scene.scene_of(args)
    if before_host_s is not None:
        _check_alike(args.against, before, staged.jobs)
    for note in staged.notes:
        messages.note(note)
    experiment, wall_s = scene.simulate(args, staged)
    _write(args, experiment, formats)
    if args.json:
        result = report.as_json(experiment, wall_s, before_host_s)
        print(json.dumps(result, indent=2, allow_nan=False))
    else:
        report.show(experiment, wall_s, before_host_s)
    sys.stdout.flush()
    return 0


def _check_outputs(args: argparse.Namespace) -> None:
    """See to it before a long simulation that its results can be written."""
    from mpicoloc.show import outputs

    for path, is_folder in ((args.out, True), (args.perfetto, False), (args.paraver, False)):
        if path is not None:
            outputs.check(path, args.files, is_folder=is_folder)


def _write(args: argparse.Namespace, result: Experiment, formats: tuple[str, ...]) -> None:
    """Tables, traces and pictures, as far as they are asked for."""
    if args.out is not None:
        from mpicoloc.replay import report

        report.write_tables(result, args.out)
    for name in ("perfetto", "paraver"):
        if getattr(args, name) is not None:
            from mpicoloc.replay import timeline

            format_module = importlib.import_module(f"mpicoloc.trace.export.{name}")
            format_module.write_recording(timeline.SimulatedCalls(result), getattr(args, name))
    if args.figures is not None:
        from mpicoloc.replay import figures as pictures

        arguments.write_figures(pictures.figures(result), args.figures, formats)
