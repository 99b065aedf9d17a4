r"""Replay jobs on a fat-tree packet by packet, and show how much they slow each other down.

Each job comes from its own profile with a trace of every call (`mpicoloc run --trace all`), or from a
pattern. It is simulated with all of its hosts on one switch (T_base), alone on the network (T_alone), and
on the network with the other jobs (T_sharing), as in Jokanovic 2014, chapters 2 and 5. Shorter jobs start
again until all have run once; each job's first run counts.

  mpicoloc replay one.h5 two.h5 --topology 'XGFT(2;16,8;1,4)' --placement F8
  mpicoloc replay --pattern incast --hosts 16 --bytes 64KiB \
      --topology 'XGFT(2;8,4;1,4)' --link-rate 100Gbit/s
  mpicoloc replay one.h5 two.h5 --topology 'XGFT(2;16,8;1,8)' --out sweep \
      --sweep slimming 8 4 2 --sweep placement F8 RF

With --propagation: one job's slowdown with bubbles on some of its nodes (Han et al. 2016, section 3.2),
from the trace and the program's curve on one node.

  mpicoloc replay one.h5 --topology 'XGFT(2;16,8;1,4)' --curves curves.csv \
      --propagation matrices.csv
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib
import json
import math
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mpicoloc import messages
from mpicoloc.bubble import propagation_verb
from mpicoloc.cli import arguments
from mpicoloc.cli.arguments import bounded
from mpicoloc.errors import UsageError
from mpicoloc.job import sweep
from mpicoloc.network.flags import add_links, add_ranks_per_host, add_topology

if TYPE_CHECKING:
    from mpicoloc.replay.experiment import Experiment, PlacedJob
    from mpicoloc.replay.programs.sources import Choices, Source


_MAX_RANKS, _MAX_MESSAGE_BYTES = 1 << 24, 1 << 40
_MAX_TIMES = (1 << 31) - 1
"""Largest number of iterations of a loop in the simulator."""
_MAX_MTU_BYTES, _MAX_BUFFER_BYTES, _MAX_EAGER_BYTES = 1 << 20, (1 << 31) - 1, 1 << 62
_LANES = arguments.several(arguments.whole(0, 255))


def _latency_s(text: str) -> float:
    """A number of seconds up to 1."""
    latency_s = arguments.seconds(text)
    if latency_s > 1:
        raise argparse.ArgumentTypeError(f"must be at most 1 s, got {text}")
    return latency_s


def _speedup(text: str) -> float:
    speedup = arguments.positive(text)
    if speedup < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1 (the rate of a link), got {text}")
    return speedup


def add_job_flags(parser: argparse.ArgumentParser) -> None:
    """Add flags for jobs and their placements."""
    add = parser.add_argument
    add(
        "files",
        metavar="FILE",
        nargs="*",
        help="profile of a job that was run with --trace all; or a SimGrid trace (folder, or list of files), "
        "an OTF2 archive, or a GOAL text",
    )
    add(
        "--pattern",
        metavar="NAME",
        help="in place of profiles: incast (all to host 0), shift:K, alltoall, uniform:LOAD or halo",
    )
    add(
        "--hosts",
        type=arguments.whole(most=_MAX_RANKS),
        metavar="N",
        help="number of hosts in the pattern",
    )
    add(
        "--bytes",
        type=arguments.size(1, _MAX_MESSAGE_BYTES),
        metavar="BYTES",
        help="size of each message of the pattern",
    )
    add(
        "--times",
        type=arguments.whole(most=_MAX_TIMES),
        metavar="N",
        help="repetitions of the pattern (1); uniform: messages of each host (100)",
    )
    add(
        "--placement",
        metavar="F8|RF|run|FILE",
        action="append",
        help="F8: 8 hosts on each first-level switch; RF: random hosts; run: where the job ran, by its "
        "nodes' names; or a file with the host of each rank. Once, or once for each job (default: run if the "
        "topology has names, else F with all hosts of a switch)",
    )
    add_ranks_per_host(parser)
    _add_tuning(parser)


def _add_tuning(parser: argparse.ArgumentParser) -> None:
    """Add flags that change the programs from a trace."""
    add = parser.add_argument
    add(
        "--cpu-speed",
        type=arguments.positive,
        metavar="X",
        help="let computation run X times as fast as recorded (1)",
    )
    add(
        "--from-s",
        type=arguments.seconds,
        metavar="S",
        help="replay part of a profile or OTF2 archive: only calls that begin at least S after the first one",
    )
    add(
        "--until-s",
        type=arguments.positive,
        metavar="S",
        help="end of that part, after the first call: later calls are left out",
    )
    add(
        "--wall-time",
        action="store_true",
        help="let computation take the recorded wall time, even where ranks waited for a processor: for "
        "programs that sleep or wait for files",
    )
    add(
        "--flops",
        type=arguments.positive,
        metavar="F",
        help="speed of the processors of a SimGrid trace, flop/s (1e9)",
    )
    add(
        "--algorithm",
        metavar="NAME=A",
        action="append",
        default=[],
        help="algorithm of a collective, as allreduce=doubling or bcast=openmpi-6 (default: the recorded MPI "
        "library's)",
    )
    add(
        "--stretch",
        metavar="J:X",
        action="append",
        help="let computation on the first J hosts take X times as long; once, or once for each job (0:1)",
    )
    add(
        "--allow-unmatched",
        action="store_true",
        help="leave out messages of a profile or OTF2 archive that lack their send or receive, and "
        "persistent or neighbourhood collectives whose messages the profile lacks",
    )


def add_network_flags(parser: argparse.ArgumentParser) -> None:
    """Add flags for topology, links, switches and messages."""
    _add_routes(parser)
    _add_hardware(parser)
    _add_lanes(parser)
    parser.add_argument(
        "--random-state",
        type=arguments.whole(0),
        metavar="N",
        default=0,
        help="seed of random routes, placements and patterns (0)",
    )


def _add_routes(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_topology(parser)
    add(
        "--slimming",
        type=arguments.count,
        metavar="S",
        help="uplinks of each switch, in place of the topology's",
    )
    add_links(parser)
    add(
        "--routing",
        metavar="NAME",
        default="d-mod-k",
        help="d-mod-k (default), s-mod-k, random (per packet), random-flow (per pair of hosts) or adaptive",
    )
    add(
        "--tables",
        metavar="FILE",
        help="opensm's forwarding tables, as dump_fts prints them, in place of --routing; for a topology "
        "from ibnetdiscover",
    )
    add("--failed", metavar="LEVEL:LINK,..", help="failed links, by their numbers on each level")


def _add_hardware(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    mtu = arguments.size(1, _MAX_MTU_BYTES)
    add("--mtu", type=mtu, metavar="BYTES", default=2048, help="largest packet, bytes (2048)")
    add(
        "--eager",
        type=arguments.size(most=_MAX_EAGER_BYTES),
        metavar="BYTES",
        default=16384,
        help="messages longer than this wait for their receive (16384)",
    )
    add(
        "--mpi-latency-s",
        type=_latency_s,
        metavar="S",
        default=1e-6,
        help="latency from a send to the network adapter (1e-6)",
    )
    add(
        "--cable-latency-s",
        type=arguments.several(_latency_s),
        metavar="S",
        default=(25e-9,),
        help="latency of each link, or of each level, separated by commas, hosts' links first (25e-9)",
    )
    add(
        "--switch-latency-s",
        type=_latency_s,
        metavar="S",
        default=100e-9,
        help="latency of each switch (100e-9)",
    )
    add(
        "--input-speedup",
        type=_speedup,
        metavar="X",
        default=math.inf,
        help="speed of the switches' input ports, in multiples of a link's (inf)",
    )
    add(
        "--flit",
        type=mtu,
        metavar="BYTES",
        default=256,
        help="bytes of a packet that a switch must have before it forwards the packet; as many as --mtu: "
        "store and forward (256)",
    )
    add(
        "--buffer",
        type=arguments.size(most=_MAX_BUFFER_BYTES),
        metavar="BYTES",
        default=65536,
        help="buffer of each port, at each end of a link, all lanes together (65536)",
    )
    add("--voq", action="store_true", help="virtual output queues: one per output, in place of one per lane")
    add("--local-rate", metavar="RATE", default="40Gbit/s", help="rate between ranks of one host (40Gbit/s)")


def _add_lanes(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--lanes",
        type=arguments.whole(most=16),
        metavar="N",
        help="virtual lanes of each link (default: as many as the other flags name, else 1)",
    )
    add(
        "--weights",
        type=arguments.several(arguments.whole(1, 255)),
        metavar="W,W,..",
        default=(),
        help="packets that each lane may send in its turn (1 each)",
    )
    add(
        "--weight-unit",
        metavar="UNIT",
        default="packets",
        help="what weights count: packets, or 64 for units of 64 bytes",
    )
    add("--lane", type=_LANES, metavar="L,L,..", default=(), help="lane of each job (0)")
    add("--high", type=_LANES, metavar="L,L,..", default=(), help="high-priority lanes")
    add(
        "--high-limit",
        type=arguments.whole(0, 255),
        metavar="N",
        help="units of 4096 bytes that high-priority lanes may send before a packet of the others (255: no "
        "limit)",
    )


JOBS = "jobs"
"""Name of the list of profiles in `--sweep`."""
_ONE_RUN = ("perfetto", "paraver", "window_s", "against", "host_gflops")
"""Flags that apply only to a single replay."""
_OF_ROW = ("j_inter_host_s", "total_contention_s", "routing", "n_packet_hops", "wall_s")
"""Keys of a row with a single number or word."""
_N_TRACES = 8
"""Number of traces that a process caches for the next rows."""


def run_sweep(args: argparse.Namespace) -> int:
    """Simulate the missing rows, and print all rows.

    Returns 1 if some rows failed. If all rows failed, returns the exit code of the first one.
    """
    from mpicoloc.replay import report

    formats = arguments.formats_of(args)
    rows, code = sweep.run(
        args, "replay", _ONE_RUN, lambda: _cases(args), row, _write_rows, report.show_sweep
    )
    if rows and args.figures is not None:
        from mpicoloc.replay import figures as pictures

        arguments.write_figures([pictures.slowdowns(rows)], args.figures, formats)
    return code


def _write_rows(rows: Sequence[dict[str, Any]], folder: str) -> None:
    """Write a table with a row for each job: the swept flags, the job's keys, and `_OF_ROW`."""
    records = [
        {**row["settings"], **job, **{name: row[name] for name in _OF_ROW}}
        for row in rows
        for job in row["jobs"]
    ]
    sweep.replace_table(records, folder)


def _cases(args: argparse.Namespace) -> list[sweep.Case]:
    """Every combination of the swept values; each is the arguments of a separate replay."""
    from mpicoloc.replay import scene

    actions = _actions()
    valued = {flag: action for flag, action in actions.items() if action.nargs != 0}
    axes = sweep.axes(args, valued, {JOBS: "files"})
    # Jobs and placements are the outermost axes, so that cached traces are reused.
    axes = {flag: axes[flag] for flag in sorted(axes, key=(JOBS, "placement", *axes).index)}
    digests: dict[str, str] = {}
    cases = []
    for settings, own in sweep.variants(args, axes, actions):
        own.figures = None
        if JOBS in settings:
            own.files = settings[JOBS].split(",")
        cases.append(sweep.Case(settings, _key(own, actions, digests), own))
    sweep.check_each(cases, bounded(scene.check), "random_state")
    return cases


def _actions() -> sweep.Actions:
    """Flags of jobs and network, by name."""
    parser = argparse.ArgumentParser(add_help=False)
    add_job_flags(parser)
    add_network_flags(parser)
    return sweep.flags_of(parser)


def _key(args: argparse.Namespace, actions: sweep.Actions, digests: dict[str, str]) -> str:
    """Key of everything that a row depends on: flags, files, and the simulator's version."""
    flags = {action.dest: getattr(args, action.dest) for action in actions.values()}
    paths = (*args.files, args.topology, args.tables, *(args.placement or ()))
    of_files = [_digest(path, digests, is_trace=path in args.files) for path in paths]
    names = [os.path.basename(path) for path in args.files]
    return sweep.key(flags, args.no_base, names, of_files)


def _digest(path: str | None, known: dict[str, str], *, is_trace: bool) -> str:
    """Digest of the contents of a file, or of the files of a trace; the word itself if it is not a path."""
    from mpicoloc.replay.programs import sources

    if path is None or not os.path.exists(path):
        return str(path)
    key = f"{path} as a trace" if is_trace else path
    if key not in known:
        known[key] = sweep.digest_of(sources.files_of(path) if is_trace else [path])
    return known[key]


@bounded
def row(args: argparse.Namespace) -> dict[str, Any]:
    """One replay in a process of a sweep: its notes, and the fields that ``--json`` prints."""
    from mpicoloc.replay import report, scene

    staged = scene.scene_of(args, _read)
    experiment, wall_s = scene.simulate(args, staged)
    return {"notes": staged.notes, **report.as_json(experiment, wall_s)}


@functools.lru_cache(maxsize=_N_TRACES)
def _read(path: str, choices: Choices) -> Source:
    """Read jobs as `sources.read` does, but cache traces and their programs from row to row."""
    import numpy as np

    from mpicoloc.replay.programs import sources

    source = sources.read(path, choices)
    placed = functools.lru_cache(maxsize=1)(lambda hosts: source.programs(np.array(hosts, np.int64)))
    return dataclasses.replace(source, programs=lambda hosts: placed(tuple(hosts.tolist())))


def read(path: str) -> tuple[list[tuple[str, int]], float]:
    """Output of another replay with ``--json``: each job with its number of hosts, and host seconds lost.

    Raises `UsageError` if the file cannot be read, or is not such a result.
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
            f"--against {path} is not the output of `mpicoloc replay --json`: give what it printed under "
            "the other policy"
        ) from None


def _check_alike(path: str, before: Sequence[tuple[str, int]], jobs: Sequence[PlacedJob]) -> None:
    now = [(job.name, job.n_hosts) for job in jobs]
    if sorted(now) != sorted(before):
        raise UsageError(
            f"--against {path} has the jobs {_words(before)}, but this replay has {_words(now)}: give a "
            "result of the same jobs on as many hosts"
        )


def _words(jobs: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{name} (hosts: {n_hosts})" for name, n_hosts in jobs) or "none"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    add_job_flags(parser)
    add_network_flags(parser)
    parser.add_argument(
        "--out", metavar="FOLDER", help="write tables of the result to this folder as Parquet"
    )
    parser.add_argument("--perfetto", metavar="FILE", help="write the simulated calls for ui.perfetto.dev")
    parser.add_argument("--paraver", metavar="FILE", help="write the simulated calls as .prv, .pcf and .row")
    parser.add_argument(
        "--window-s",
        type=arguments.positive,
        metavar="S",
        help="window length for link loads (default: long enough for at most 256 windows)",
    )
    arguments.add_figures(parser, "contention, links over time and ranks")
    parser.add_argument("--no-base", action="store_true", help="leave out the runs on one switch")
    parser.add_argument(
        "--against",
        metavar="FILE",
        help="output of --json under another policy, for E(P): the time lost there over the time lost here",
    )
    parser.add_argument(
        "--host-gflops",
        type=arguments.positive,
        metavar="P",
        help="speed of a host; prints how much the hosts could compute in the time that jobs lose to each "
        "other",
    )
    sweep.add_arguments(
        parser,
        "replay with each of these values of a flag, as --sweep slimming 1 2 4; several --sweep: every "
        "combination. jobs one.h5,two.h5 names profiles; the value none leaves the flag out. Rows are saved "
        "in --out, and saved combinations are not run again. Uses all cores, or the ranks of mpirun",
    )
    propagation_verb.add_replay_flags(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Simulate and print."""
    if args.propagation is not None:
        from mpicoloc.bubble.propagation_runs import run_replay

        return run_replay(args)
    propagation_verb.refuse_matrix_flags(args)
    if args.sweep is not None:
        return run_sweep(args)
    sweep.check_single(args)
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
        result = report.as_json(experiment, wall_s, before_host_s, args.host_gflops)
        print(json.dumps(result, indent=2, allow_nan=False))
    else:
        report.show(experiment, wall_s, before_host_s, args.host_gflops)
    sys.stdout.flush()
    return 0


def _check_outputs(args: argparse.Namespace) -> None:
    """Check before a long simulation that its results can be written."""
    from mpicoloc.show import outputs

    for path, is_folder in ((args.out, True), (args.perfetto, False), (args.paraver, False)):
        if path is not None:
            outputs.check(path, args.files, is_folder=is_folder)


def _write(args: argparse.Namespace, result: Experiment, formats: tuple[str, ...]) -> None:
    """Write the tables, traces and figures that the flags request."""
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
