r"""Tell what a job does to each level of a fat-tree, the job's own or any other.

Bytes, injection rate, bandwidth available to the job's hosts and utilisation of each level, as in Jokanovic
2014, chapter 3: L0 is what leaves a host, L1 what leaves a first-level switch. Several placements and
slimmings are compared. Several profiles, each with its placement, are jobs that run together: which links
they share.

  mpicoloc network job.h5 --topology 'XGFT(3;16,16,8;1,16,16)' \
      --placement F8,RF --slimming 8,2
  mpicoloc network one.h5 two.h5 --topology cluster.yaml \
      --placement one.hosts --placement two.hosts
"""

from __future__ import annotations

import argparse
import glob
import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mpicoloc import config
from mpicoloc.cli import drawn
from mpicoloc.cli.memory import bounded
from mpicoloc.core import messages, progress
from mpicoloc.errors import DataError, MpicolocError, UsageError

if TYPE_CHECKING:
    from mpicoloc.core.profile import Profile
    from mpicoloc.core.topology import Hosts, Placement, Topology
    from mpicoloc.network.topology.fabric import Fabric
    from mpicoloc.network.traffic.job_traffic import JobTraffic
    from mpicoloc.report.terminal.network import Case

RUN = "run"
LINK_RATE = str(config.BY_KEY["network.link_rate"].default)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    add = parser.add_argument
    add("files", metavar="PROFILE", nargs="+", help="profile that a job wrote")
    add(
        "--topology",
        metavar="XGFT|FILE",
        required=True,
        help="a notation like 'XGFT(3;16,16,8;1,8,8)', YAML, Slurm's topology.conf, ibnetdiscover's output",
    )
    add(
        "--placement",
        metavar="F8|RF|run|FILE",
        action="append",
        help="k hosts on each first-level switch; at random; where the job ran, by its nodes' names; a file "
        "with the host of each rank. Several with commas, or once for each profile (default: run if the "
        "topology has names, else F with all hosts of a switch)",
    )
    add("--slimming", metavar="S", help="links up from each switch, not the topology's; several with commas")
    add("--up-links", metavar="W1,W2,..", help="w1 to wh, if the topology's file lacks them")
    add(
        "--link-rate",
        metavar="RATE",
        help=f"rate of links that have none in the topology, for all or each level with commas ({LINK_RATE})",
    )
    add("--ranks-per-host", metavar="N", default="1", help="for placements Fk and RF (1)")
    add("--routing", metavar="NAME", default="d-mod-k", help="d-mod-k, s-mod-k or random[:SEED] (d-mod-k)")
    add("--seed", metavar="N", default="0", help="for placement RF (0)")
    add("--duration-s", metavar="S", help="time in which the job sent its bytes (default: its run time)")
    add("--window-s", metavar="S", help="rates in windows of this length too, from a profile with a trace")
    add(
        "--monitoring",
        metavar="PREFIX",
        help="take the messages from PREFIX.<rank>.prof, which Open MPI's own components wrote",
    )
    add("--json", action="store_true", help="print the result as JSON")
    drawn.add_arguments(parser, "the result too,")


@bounded
def run(args: argparse.Namespace) -> int:
    """Print the levels of each case."""
    from mpicoloc.profile import profiles
    from mpicoloc.report.terminal import network as report

    formats = drawn.formats_of(args)
    fabric = fabric_of(args)
    trees = _trees(args, fabric)
    jobs = [(file, profiles.read(file)) for file in progress.steps(args.files, "reading", unit="profiles")]
    names = [_placements_of(args, fabric, i) for i in range(len(jobs))]
    n_ways = max(map(len, names)) * len(trees)
    together = len(jobs) > 1 and n_ways == 1
    if len(jobs) > 1 and not together:
        messages.note(f"each job has {n_ways} placements and slimmings: give one, to see what jobs share")
    cases: list[Case] = []
    for (file, profile), own in zip(jobs, names, strict=True):
        found = _cases(args, fabric, trees, (file, profile), own, _free(fabric, cases if together else []))
        if together:
            _check_apart(fabric, cases, found[0])
        cases += found
    shared = report.sharing(cases) if together else None
    if args.json:
        print(json.dumps(report.as_json(cases, shared), indent=2, allow_nan=False))
    else:
        report.show(cases, shared)
    sys.stdout.flush()
    if args.figures is not None:
        from mpicoloc.report.figures import network

        drawn.write(network.figures(cases, shared), args.figures, formats)
    return 0


def _free(fabric: Fabric, cases: list[Case]) -> Hosts:
    """Hosts on which none of these jobs runs."""
    import numpy as np

    taken = [case.placement.hosts for case in cases]
    return np.setdiff1d(fabric.hosts(), np.concatenate(taken)) if taken else fabric.hosts()


def _check_apart(fabric: Fabric, others: list[Case], case: Case) -> None:
    """See to it that jobs that run together have hosts of their own, as estimates of sharing assume."""
    import numpy as np

    for other in others:
        both = np.intersect1d(case.placement.hosts, other.placement.hosts)
        if len(both):
            name = fabric.host_names[both[0]] if fabric.host_names else str(both[0])
            raise UsageError(
                f"jobs {other.job.id} and {case.job.id} both have ranks on host {name}: links are shared by "
                "jobs on hosts of their own; give --placement for each profile, like F1 or RF on free hosts"
            )


def fabric_of(args: argparse.Namespace) -> Fabric:
    """The topology that the flags name, with the number of up-links and the rates that they tell."""
    from mpicoloc.network.topology import readers, xgft

    text, source = args.topology, "--topology"
    if not xgft.is_notation(text):
        text, source = _contents(args.topology), args.topology
    return readers.described(text, source, args.link_rate or LINK_RATE, args.up_links)


def _trees(args: argparse.Namespace, fabric: Fabric) -> list[Topology]:
    """The topology under each slimming, none of them too large."""
    from mpicoloc.network.load import routing
    from mpicoloc.network.topology import readers, xgft

    slimmings = readers.whole_numbers("--slimming", args.slimming) if args.slimming else []
    try:
        trees = [xgft.slimmed(fabric.topology, s) for s in slimmings] or [fabric.topology]
    except DataError as error:
        raise UsageError(f"--slimming {args.slimming}: {error}") from None
    for tree in trees:
        routing.check_links(tree)
    return trees


def _contents(path: str) -> str:
    try:
        with open(path, encoding="utf-8-sig", errors="replace") as file:
            return file.read()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"{path!r} cannot be read ({reason}): give a file, or a notation of a topology"
        ) from None


def _placements_of(args: argparse.Namespace, fabric: Fabric, i: int) -> list[str]:
    """Names of the placements for profile `i`."""
    given, n = args.placement, len(args.files)
    if not given:
        return [RUN if fabric.host_names else f"F{fabric.topology.m[0]}"]
    if n > 1 and len(given) not in (1, n):
        raise UsageError(
            f"--placement must be given once, or once for each of the {n} profiles, got {len(given)}"
        )
    words: list[str] = (given[i] if len(given) == n > 1 else ",".join(given)).split(",")
    return words


def _cases(
    args: argparse.Namespace,
    fabric: Fabric,
    trees: list[Topology],
    job: tuple[str, Profile],
    names: list[str],
    free: Hosts,
) -> list[Case]:
    """Every placement of a job on every slimming of the topology."""
    from mpicoloc.network.load import routing, sharing, utilisation, windows
    from mpicoloc.report.terminal.network import Case
    from mpicoloc.trace import times

    file, profile = job
    timed = times.timed_messages(file, profile) if args.window_s else None
    duration_s = _given("--duration-s", args.duration_s) or profile.job.wall_s or None
    route = routing.by_name(args.routing)
    window_s = _given("--window-s", args.window_s)
    facts: dict[str, Any] = {
        "file": file,
        "job": profile.job,
        "routing": args.routing,
        "duration_s": duration_s,
        "assumed_levels": () if args.link_rate else fabric.assumed_levels,
        "assumes_up_links": fabric.assumes_up_links and not args.slimming,
        "partial": profile.partial,
    }
    cases: list[Case] = []
    notes: tuple[str, ...] = ()
    for name in names:
        placement = _placement(args, fabric, profile, name, free)
        with progress.part(f"messages of job {profile.job.id}, {name}"):
            told = _traffic(args, profile, placement)
        notes = notes or told.notes
        for topology in progress.steps(trees, f"routing job {profile.job.id}, {name}", unit="trees"):
            levels = utilisation.utilisation(topology, placement, told.traffic, duration_s)
            where = (topology, placement, told.traffic, route)
            loads = utilisation.job_link_loads(*where)
            case = Case(
                **facts,
                topology=topology,
                placement_name=name,
                placement=placement,
                levels=levels,
                loads=loads,
                dropped_bytes=told.dropped_bytes,
                senders=sharing.sending_hosts(*where) if len(args.files) > 1 else None,
            )
            if timed is not None and window_s is not None:
                calls = times.collective_calls(file, profile, told.by_call)
                found = windows.windows(topology, placement, timed, window_s, calls)
                case = replace(case, windows=found)
            cases.append(case)
    for note in notes:
        messages.note(note)
    return cases


def _traffic(args: argparse.Namespace, profile: Profile, placement: Placement) -> JobTraffic:
    """What the job sends where its ranks run so; libraries let the ranks of a host act as one."""
    from mpicoloc.core.traffic import TrafficSum
    from mpicoloc.network.traffic import monitoring
    from mpicoloc.network.traffic.job_traffic import JobTraffic, job_traffic

    job = profile.job
    if args.monitoring:
        names = sorted(glob.glob(f"{glob.escape(args.monitoring)}.*.prof"))
        if not names or len(args.files) > 1:
            raise UsageError(
                f"--monitoring {args.monitoring!r} needs files PREFIX.<rank>.prof, and one profile"
            )
        read = monitoring.read(((name, _contents(name)) for name in names), job.n_ranks)
        return JobTraffic(TrafficSum(job.n_ranks, (read,)), 0, ())
    return job_traffic(profile.tables, job.n_ranks, job.mpi_library, placement.hosts)


def _given(flag: str, text: str | None) -> float | None:
    return None if text is None else config.positive(flag, text)


def _placement(
    args: argparse.Namespace, fabric: Fabric, profile: Profile, name: str, free: Hosts
) -> Placement:
    import numpy as np

    from mpicoloc.network.topology import placements, readers
    from mpicoloc.network.topology.fabric import placement_of
    from mpicoloc.network.traffic import recorded

    n_ranks = profile.job.n_ranks
    if name == RUN:
        return placement_of(fabric, recorded.hostnames(profile))
    per_host, *more = readers.whole_numbers("--ranks-per-host", args.ranks_per_host)
    if more:
        raise UsageError(f"--ranks-per-host must be one whole number above 0, got {args.ranks_per_host!r}")
    if not (args.seed.isascii() and args.seed.isdigit() and len(args.seed) < 19):
        raise UsageError(f"--seed must be a whole number >= 0, got {args.seed!r}")
    rng = np.random.default_rng(int(args.seed))
    try:
        return placements.by_name(name, fabric.topology, n_ranks, rng, per_host, free)
    except UsageError as error:
        try:
            contents = _contents(name)
        except MpicolocError:
            raise error from None
    return placements.of_text(contents, name, fabric, n_ranks)
