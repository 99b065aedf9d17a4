"""The figures of one profile, the most important first."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mpicoloc.bubble import shutters as bubbled_shutters
from mpicoloc.core.network import Placement, Topology
from mpicoloc.core.profile import VERDICTS, Profile, text
from mpicoloc.core.progress import count, stage
from mpicoloc.core.units import amount
from mpicoloc.errors import DataError, printable
from mpicoloc.measure import processor
from mpicoloc.measure.convergence import running_slowdowns
from mpicoloc.measure.job_scaling import split_wall
from mpicoloc.network import utilisation
from mpicoloc.network.traffic.job_traffic import CallRows
from mpicoloc.network.utilisation import spread, windows
from mpicoloc.profile.symbolize import site_words
from mpicoloc.show.figures import (
    MOST,
    WIDTH,
    Bars,
    Blocks,
    Figure,
    Gap,
    hosts,
    of_ranks,
    plot,
    short,
    short_place,
)
from mpicoloc.trace import times

if TYPE_CHECKING:
    from mpicoloc.bubble.shutters import Bubbled

_Told = str | tuple[Any, ...] | None
"""Description, header, rows, plot function and size of a figure. If the figure is missing: the reason as
text. If nobody wants the figure: None."""
Maker = Callable[..., Figure | Gap | None]


def _figure(name: str, title: str) -> Callable[[Callable[..., _Told]], Maker]:
    """Decorator that makes a `Figure` or a `Gap` of this name from a function's result."""

    def of(tell: Callable[..., _Told]) -> Maker:
        @functools.wraps(tell)
        def made(profile: Profile, file: str | None = None) -> Figure | Gap | None:
            told = tell(profile, file) if made in OF_TRACES else tell(profile)
            if told is None:
                return None
            return Gap(name, title, told) if isinstance(told, str) else Figure(name, title, *told)

        return made

    return of


@_figure("bubbles", "Slowdown beside bubbles")
def sensitivity(profile: Profile) -> _Told:
    """The slowdown beside bubbles of each level, and the job's score; None if no bubbles were requested."""
    if not bubbled_shutters.ran_any(profile.tables["shutters"]):
        why = bubbled_shutters.why_none(profile)
        return f"no bubble ran in the job's shutters: {why}" if why else None
    found = bubbled_shutters.from_tables(profile.tables, profile.job.command)
    if found.curve is None:
        return f"{found.reason}. {_score_words(found)}"
    columns = (found.curve.levels, found.curve.slowdown, found.curve.low, found.curve.high)
    rows = tuple(zip(*(column.tolist() for column in columns), strict=True))

    return (
        f"The job's slowdown beside bubbles of each level, with 95 % intervals, from {found.n_used} of its "
        f"shutters (Han et al. 2016, section 2). {_score_words(found)}",
        ("level", "slowdown", "low", "high"),
        rows,
        plot("with_intervals", rows, "level of the bubble", "T_bubble / T_alone"),
    )


def _score_words(found: Bubbled) -> str:
    score = found.score
    if score is None:
        return f"Its own pressure is not known: {found.score_reason}."
    return f"It slows others like a bubble of level {score.value:.1f} ({score.low:.1f} to {score.high:.1f})."


MEANINGS = ("cut short by the job's end", "valid", "a co-runner moved", "a co-runner was paused too late",
            "a co-runner did not answer", "not valid on another node", "a bubble ran in it",
            "some co-runners went on")  # fmt: skip
"""Meanings of the verdicts, in order of their numbers."""
MANY_DOTS = 2000
ALONE = "the job had no co-runner under mpicoloc, so its slowdown is 1 without any shutter"


@_figure("slowdown", "Slowdown, as shutters came in")
def running_slowdown(profile: Profile) -> _Told:
    """The slowdown estimated from the first n shutters, for growing n."""
    found = running_slowdowns(profile, rng=np.random.default_rng(0))
    if not found:
        reason = profile.interference.reason or "for an unknown reason"
        return _alone(profile) or f"the slowdown was not measured: {reason}"
    rows = tuple((one.n, one.value, one.low, one.high) for one in found)

    final = found[-1]
    return (
        f"T_co/T_solo, estimated from a growing number of the job's shutters, with the 95 % interval. With "
        f"all {final.n} it is {final.value:.3f} ({final.low:.3f} to {final.high:.3f}), by {final.method} "
        f"(Breslow et al. 2013, Eq. 6 to 8).",
        ("n_shutters", "slowdown", "low", "high"),
        rows,
        plot("settling", rows, "valid shutters used"),
    )


def _alone(profile: Profile) -> str | None:
    """The reason for the gap if the job had no co-runner; None if it had one."""
    found = profile.interference.slowdown
    return ALONE if found is not None and found.method == processor.ALONE else None


@_figure("shutters", "Shutters over time")
def shutters(profile: Profile) -> _Told:
    """Start of each shutter, with its verdict."""
    table = profile.tables["shutters"]
    if not len(table):
        none = "the job took no shutters: it had no co-runner, or no node agent, or was short"
        return _alone(profile) or none
    offset_s = np.nan_to_num(profile.tables["nodes"]["clock_offset_s"])
    known = (table["i_node"] >= 0) & (table["i_node"] < len(offset_s))
    start_s = table["t0_ns"] * 1e-9 - np.where(known, offset_s[table["i_node"] * known], 0.0)
    start_s -= start_s.min()
    length_s = (table["t1_ns"].astype(float) - table["t0_ns"]) * 1e-9
    names = hosts(profile)
    words = [VERDICTS[v] if v < len(VERDICTS) else "unknown" for v in table["verdict"].tolist()]
    rows = tuple(
        (names.get(int(row["i_node"])), int(row["epoch"]), at, long, word, int(row["n_corunners"]))
        for row, at, long, word in zip(table, start_s.tolist(), length_s.tolist(), words, strict=True)
    )
    present = [word for word in VERDICTS if word in words]
    labels = {word: MEANINGS[VERDICTS.index(word)] for word in present}

    places = [[row[2] for row in rows if row[4] == word] for word in present]
    counted = [f"{labels[word]}: {len(at):,}" for word, at in zip(present, places, strict=True)]
    n_valid = words.count("valid")
    return (
        f"Each shutter of the job by its start since the first one, with its verdict; {n_valid:,} of "
        f"{len(rows):,} are valid: every co-runner was paused (Breslow et al. 2013).",
        ("hostname", "epoch", "start_s", "duration_s", "verdict", "n_corunners"),
        rows,
        plot("dots", counted, places, raster=len(rows) > MANY_DOTS),
        (WIDTH, 1.5 + 0.4 * len(present)),
    )


@_figure("wall-time", "Where the wall time went")
def wall_time(profile: Profile) -> _Told:
    """The job's time alone, beside co-runners, in its own shutters, and in pauses for others' shutters."""
    nodes = profile.tables["nodes"]
    if not len(nodes) or profile.job.wall_s <= 0:
        return "no node agent watched the job, so its co-runners are unknown"
    split = split_wall(profile.job.wall_s, nodes, profile.tables["shutters"])
    rows = (
        ("without co-runners", split.alone_s),
        ("with co-runners", split.corun_s),
        ("in its own shutters", split.solo_s),
        ("paused for others", split.paused_s),
    )

    return (
        f"The job's {profile.job.wall_s:.4g} s by activity, as node agents saw them, averaged over nodes.",
        ("what", "time_s"),
        rows,
        plot("lying", [row[0] for row in rows], [row[1] for row in rows]),
        (WIDTH, 2.2),
    )


@_figure("slowdown-by-rank", "Slowdown of each rank by itself")
def slowdown_by_rank(profile: Profile) -> _Told:
    """The slowdown of each single rank."""
    ranks = profile.tables["ranks"]
    known = np.sort(ranks[~np.isnan(ranks["slowdown"])], order="rank")
    if not len(known):
        none = "no rank has a slowdown of its own: that takes co-runners and enough shutters"
        return _alone(profile) or none
    names = hosts(profile)
    rows = tuple(
        (rank, names.get(i_node), *ends)
        for rank, i_node, *ends in known[
            ["rank", "i_node", "slowdown", "slowdown_low", "slowdown_high"]
        ].tolist()
    )
    blocks = of_ranks(known["rank"])

    ends = (blocks.means(known["slowdown"]), blocks.least(known["slowdown_low"]),
            blocks.most(known["slowdown_high"]))  # fmt: skip
    return (
        f"T_co/T_solo of {len(known):,} of {len(ranks):,} ranks while they had co-runners, with 95 % "
        f"intervals{blocks.words('means, and the widest ends')}.",
        ("rank", "hostname", "slowdown", "slowdown_low", "slowdown_high"),
        rows,
        plot("interval_by_rank", blocks.first, *ends, "T_co / T_solo"),
        (WIDTH, 3.0),
    )


N_WINDOWS = 240
"""Number of windows of the timeline."""
NO_MESSAGES = "no messages were recorded: the job sent none by point-to-point or one-sided calls"


@_figure("matrix", "Bytes sent from each to each")
def matrix(profile: Profile) -> _Told:
    """The bytes that each rank sent to each other rank."""
    n_ranks, sent = profile.job.n_ranks, _sent(profile)
    sent = sent[_is_rank(sent["src"], n_ranks) & _is_rank(sent["dst"], n_ranks)]
    if not len(sent):
        return NO_MESSAGES
    of, labels, unit = _parties(profile)
    n = len(labels)
    cell, where = np.unique(of[sent["src"]] * n + of[sent["dst"]], return_inverse=True)
    n_bytes, n_messages = (np.bincount(where, sent[key].astype(float)) for key in ("bytes", "n"))
    src, dst = np.divmod(cell, n)
    columns = (column.tolist() for column in (src, dst, n_messages, n_bytes))
    rows = tuple((labels[i], labels[j], int(m), int(b)) for i, j, m, b in zip(*columns, strict=True))

    dense = np.zeros((n, n))
    dense[src, dst] = n_bytes
    scale = " Colours are on a logarithmic scale." if n_bytes.min() < n_bytes.max() else ""
    return (
        f"Bytes that each {unit} sent to each other one by point-to-point and one-sided calls, without "
        f"collectives; {len(rows):,} pairs exchanged messages.{scale}",
        (f"src_{unit}", f"dst_{unit}", "n_messages", "sent_bytes"),
        rows,
        plot("heat", dense, [short(label) for label in labels], unit),
        (WIDTH, 4.3),
    )


def _sent(profile: Profile) -> np.ndarray:
    """Messages from `src` to `dst`; the target of MPI_Get counts as their sender."""
    peers = profile.tables["peers"]
    got = peers[peers["n_got"] > 0].copy()
    for name, other in (("src", "dst"), ("dst", "src"), ("n", "n_got"), ("bytes", "got_bytes")):
        got[name] = peers[peers["n_got"] > 0][other]
    return np.concatenate([peers[peers["n"] > 0], got])


def _is_rank(numbers: np.ndarray, n_ranks: int) -> np.ndarray:
    return (numbers >= 0) & (numbers < n_ranks)


def _parties(profile: Profile) -> tuple[np.ndarray, list[str], str]:
    """The group of each rank (itself, its node, or a block of ranks), the groups' names, and their kind."""
    n_ranks, ranks = profile.job.n_ranks, profile.tables["ranks"]
    each = np.arange(n_ranks)
    if n_ranks <= MOST:
        return each, [str(rank) for rank in each], "rank"
    names = hosts(profile)
    of = np.full(n_ranks, -1)
    of[ranks["rank"]] = ranks["i_node"]
    if 1 < len(names) <= MOST and ((of >= 0) & (of < len(names))).all():
        return of, [names[i] for i in range(len(names))], "node"
    blocks = of_ranks(each)
    last = np.minimum(blocks.first + blocks.size, n_ranks) - 1
    labels = [f"{i}-{j}" for i, j in zip(blocks.first.tolist(), last.tolist(), strict=True)]
    return blocks.of, labels, "block"


@_figure("message-sizes", "Sizes of messages")
def sizes(profile: Profile) -> _Told:
    """Numbers and bytes of messages by size."""
    sent = _sent(profile)
    if not len(sent):
        return NO_MESSAGES
    size_class = sent["size_class"].astype(np.int64).clip(0, 64)
    n, n_bytes = (np.bincount(size_class, sent[key].astype(float), 65) for key in ("n", "bytes"))
    classes = range(int(size_class.min()), int(size_class.max()) + 1)
    rows = tuple((2 ** (c - 1) if c else 0, 2**c if c else 1, int(n[c]), int(n_bytes[c])) for c in classes)

    labels = [amount(row[0]).replace(" ", "") for row in rows]
    panels = [("messages", "", [row[2] for row in rows]), ("bytes", "B", [row[3] for row in rows])]
    return (
        "Messages sent by point-to-point and one-sided calls, and their bytes, by size: each bar has sizes "
        "from its label to twice that.",
        ("from_bytes", "below_bytes", "n_messages", "sent_bytes"),
        rows,
        plot("histogram", labels, panels),
        (WIDTH, 4.0),
    )


@_figure("timeline", "Messages over time")
def timeline(profile: Profile, file: str | None = None) -> _Told:
    """Messages over time; `file` is the profile's file, which may have a trace beside it."""
    messages = times.of_trace(times.timed_messages, file, profile)
    if isinstance(messages, str):
        return messages
    if not len(messages.src):
        return "the trace has no call that sends to a known rank"
    n_ranks = profile.job.n_ranks
    span_s = float(messages.end_s.max() - messages.start_s.min())
    # Put each rank on a host of its own below a single switch, so that every message leaves a host.
    flat = Topology((max(n_ranks, int(messages.dst.max()) + 1),), (1,), (1.0,))
    found = windows(flat, Placement(np.arange(flat.n_hosts)), messages, max(span_s / N_WINDOWS, 1e-9))
    rates, in_transit = found.injection_bps[:, 0], found.in_transit_bytes
    start_s = np.arange(len(rates)) * found.window_s
    rows = tuple(zip(start_s.tolist(), rates.tolist(), in_transit.tolist(), strict=True))
    mean = float(in_transit.mean())

    return (
        f"Bytes per second that ranks send each other, and bytes in transit, in {len(rows)} windows of "
        f"{found.window_s:.3g} s of the trace; the line is the mean, {amount(mean)} "
        "(Jokanovic 2014, Eq. 2.1).",
        ("start_s", "sent_bps", "in_transit_bytes"),
        rows,
        plot("windows", found.window_s, found.injection_bps, in_transit, mean, "sent between ranks"),
        (WIDTH, 4.0),
    )


@_figure("network", "Utilisation of the network's levels")
def levels(profile: Profile) -> _Told:
    """The job's load on each level of its network."""
    found = profile.network
    if found is None:
        return (
            "no topology was given: set MPICOLOC_TOPOLOGY for future jobs, or see "
            "mpicoloc network --topology ... --figures FOLDER for this one"
        )
    rows = tuple(
        (row.level, row.sent_bytes, row.injection_bps, row.available_bps, row.utilisation_frac)
        for row in found.levels
    )

    by = (
        ""
        if found.duration_s is None
        else f"; rates are bytes over {found.duration_s:.4g} s, {profile.time_alone_by}"
    )
    others = [utilisation.by_wall_time(row[4], found.duration_s, profile.job.wall_s) for row in rows]
    if any(others):
        by += f" (by wall time {', '.join(f'L{i} {used or 0.0:.2%}' for i, used in enumerate(others))})"
    labels = [f"L{row[0]}" for row in rows]
    limits = dict(zip(utilisation.CLASSES[1:], utilisation.LIMITS, strict=True))
    panels = [Bars(printable(found.topology), labels, [""], [[row[4]] for row in rows])]
    return (
        f"Share of the bandwidth available to the job's hosts that its messages used on each level, on a "
        f"logarithmic axis; demand {found.demand_class or 'unknown'} (Jokanovic 2014, Figures 3.6 and 3.7). "
        f"Counted: {found.traffic}{by}.",
        ("level", "sent_bytes", "injection_bps", "available_bps", "utilisation_frac"),
        rows,
        plot("panels_of_bars", panels, unit="%", label="utilisation", log=True, limits=limits),
        (WIDTH, 2.8),
    )


N_CALLS = 7
"""Number of functions that have a colour of their own; all other functions share one colour."""
N_BARS = 16
N_LOOKED_UP = 200
"""Largest number of call sites whose function and line are looked up."""
N_LETTERS = 36
"""Largest number of letters of a call site's name."""
NO_CALLS = "the profile has no call sites: the job made no MPI calls, or no rank left a record"
OTHERS = "others"


@_figure("calls", "Time in MPI by function")
def calls(profile: Profile) -> _Told:
    """Time in each MPI function, summed over ranks."""
    sites = profile.tables["call_sites"]
    if not len(sites):
        return NO_CALLS
    words, of = np.unique(sites["call"], return_inverse=True)
    time_s, n, sent, received = (
        np.bincount(of, sites[key].astype(float), len(words))
        for key in ("time_ns", "n", "sent_bytes", "recv_bytes")
    )
    order = np.argsort(-time_s, kind="stable")
    rows = tuple(
        (printable(text(words[i])), int(n[i]), time_s[i] * 1e-9, int(sent[i]), int(received[i]))
        for i in order
    )
    shown = rows[:N_BARS]

    of_all = "" if len(rows) <= N_BARS else f" The {N_BARS} longest of {len(rows)} are drawn."
    sampled = " Some times are estimated by sampling." if (sites["n_timed"] < sites["n"]).any() else ""
    return (
        f"Time inside each MPI function, summed over ranks and threads.{of_all}{sampled}",
        ("call", "n_calls", "time_s", "sent_bytes", "recv_bytes"),
        rows,
        plot("lying", [short(row[0]) for row in shown], [row[2] for row in shown]),
        (WIDTH, 1.0 + 0.24 * len(shown)),
    )


@_figure("call-sites", "Time in MPI by call site")
def call_sites(profile: Profile) -> _Told:
    """Time in MPI at each call site, summed over ranks."""
    sites = profile.tables["call_sites"]
    if not len(sites):
        return NO_CALLS
    keys = np.empty(len(sites), [("i_site", "?"), ("i_module", "i8"), ("offset", "u8"), ("call", "S40")])
    for key in keys.dtype.names or ():
        keys[key] = sites[key]
    places, of = np.unique(keys, return_inverse=True)
    time_s, n = (np.bincount(of, sites[key].astype(float), len(places)) for key in ("time_ns", "n"))
    order = np.argsort(-time_s, kind="stable")
    words = site_words(profile, places[order], N_LOOKED_UP)
    calls = [printable(text(call)) for call in places[order]["call"]]
    rows = tuple(
        (printable(name) or None, printable(site), call, int(n[i]), time_s[i] * 1e-9)
        for i, (name, site), call in zip(order.tolist(), words, calls, strict=True)
    )
    shown = rows[:N_BARS]

    calls = [short(f"{row[2].removeprefix('MPI_')}: ") for row in shown]
    room = [max(N_LETTERS - len(call), N_LETTERS // 2) for call in calls]
    names = [short_place(row[0] or row[1], n) for row, n in zip(shown, room, strict=True)]
    labels = [call + name for call, name in zip(calls, names, strict=True)]
    of_all = "" if len(rows) <= N_BARS else f" The {N_BARS} longest of {len(rows):,} are drawn."
    return (
        f"Time inside MPI by calling place in the program, summed over ranks.{of_all}",
        ("place", "site", "call", "n_calls", "time_s"),
        rows,
        plot("lying", labels, [row[4] for row in shown]),
        (WIDTH, 1.0 + 0.24 * len(shown)),
    )


@_figure("rank-timeline", "What the ranks did over time")
def rank_timeline(profile: Profile, file: str | None = None) -> _Told:
    """The activity of each rank over time; `file` is the profile's file."""
    found = times.of_trace(times.all_calls, file, profile)
    if isinstance(found, str):
        return found
    if not len(found.rank):
        return "the trace has no call"
    first_s = float(found.start_s.min())
    window_s = max((float(found.end_s.max()) - first_s) / N_WINDOWS, 1e-9)
    blocks = of_ranks(np.arange(profile.job.n_ranks))
    total_s = np.bincount(found.kind, found.end_s - found.start_s, len(found.names))
    names, place = longest_functions(found.names, total_s)
    shares = _shares(found, place[found.kind], len(names), blocks, first_s, window_s)
    lane, window, kinds = np.nonzero(shares)
    columns = (blocks.first[lane], window * window_s, np.array(names)[kinds], shares[lane, window, kinds])
    rows = tuple(zip(*(column.tolist() for column in columns), strict=True))

    which = "the last calls of each rank" if len(profile.tables["events"]) else "every call"
    height = 1.5 + min(4.0, max(0.6, 0.22 * len(blocks.first)))
    return (
        f"The function in which each rank spent most of its time in MPI, in {N_WINDOWS} windows of "
        f"{window_s:.3g} s of the trace, which has {which}; paler where the rank was outside MPI for part of "
        f"the window, empty where it was for all of it{blocks.words('means')}.",
        ("rank", "start_s", "call", "time_frac"),
        rows,
        plot("lanes", blocks.first, shares, [short(word) for word in names], window_s),
        (WIDTH, height),
    )


def longest_functions(names: Sequence[str], total_s: NDArray[Any]) -> tuple[list[str], NDArray[np.int64]]:
    """The functions with the most time (the last may be `OTHERS`), and each function's index among them."""
    order = np.argsort(-total_s, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.minimum(np.arange(len(order)), N_CALLS)
    longest = [printable(names[i]) for i in order[:N_CALLS]]
    return longest + [OTHERS] * (len(order) > N_CALLS), place


def _shares(
    found: CallRows, kind: NDArray[np.integer], n_kinds: int, blocks: Blocks, first_s: float, window_s: float
) -> NDArray[np.float64]:
    """Fraction of a window that a block of ranks spent in a function, with axes block, window, function."""
    n_lanes = len(blocks.first)
    start, end = ((times_s - first_s) / window_s for times_s in (found.start_s, found.end_s))
    start, end = np.clip(start, 0, N_WINDOWS), np.clip(end, 0, N_WINDOWS)
    # Put the windows of all pairs of block and function on one axis, one pair after another.
    at = (blocks.of[found.rank] * n_kinds + kind) * float(N_WINDOWS)
    sums = spread(at + start, at + end, end - start, n_lanes * n_kinds * N_WINDOWS)
    sums = sums.reshape(n_lanes, n_kinds, N_WINDOWS).transpose(0, 2, 1)
    n_ranks = np.bincount(blocks.of, minlength=n_lanes)
    return np.where(sums > 1e-9, sums / n_ranks[:, None, None], 0.0)


@_figure("calls-by-rank", "Time in MPI by function and rank")
def calls_by_rank(profile: Profile) -> _Told:
    """Time of each rank in the functions with the most time."""
    sites = profile.tables["call_sites"]
    if not len(sites):
        return NO_CALLS
    words, of = np.unique(sites["call"], return_inverse=True)
    total = np.bincount(of, sites["time_ns"].astype(float), len(words))
    names, place = longest_functions(list(map(text, words)), total)
    n_ranks = profile.job.n_ranks
    cell = place[of] * n_ranks + sites["rank"]
    times = np.bincount(cell, sites["time_ns"] * 1e-9, len(names) * n_ranks).reshape(len(names), n_ranks)
    rows = tuple((rank, *times[:, rank].tolist()) for rank in range(n_ranks))
    blocks = of_ranks(np.arange(n_ranks))

    parts = [(short(word), blocks.means(row)) for word, row in zip(names, times, strict=True)]
    return (
        f"Time of each rank inside MPI functions, all threads together{blocks.words('means')}.",
        ("rank", *(f"{word}_s" for word in names)),
        rows,
        plot("stacked_by_rank", blocks.first, parts),
        (WIDTH, 3.8),
    )


@_figure("imbalance", "Load of the ranks")
def imbalance(profile: Profile) -> _Told:
    """Time of each rank outside and inside MPI."""
    ranks = np.sort(profile.tables["ranks"], order="rank")
    if not len(ranks) or not (ranks["comp_ns"] + ranks["mpi_ns"]).any():
        return "no rank left a record of its time"
    comp_s, mpi_s, sampled_s = (ranks[key] * 1e-9 for key in ("comp_ns", "mpi_ns", "sampled_ns"))
    columns = (ranks["rank"], comp_s, mpi_s, sampled_s)
    rows = tuple(zip(*(column.tolist() for column in columns), strict=True))
    blocks = of_ranks(ranks["rank"])

    parts = [("outside MPI", blocks.means(comp_s)), ("in MPI", blocks.means(mpi_s))]
    mean = float(comp_s.mean())
    uneven = f" The longest is {comp_s.max() / mean - 1:.1%} above it." if mean else ""
    return (
        f"Time of each rank outside and inside MPI{blocks.words('means')}. On the mean {mean:.4g} s are "
        f"outside.{uneven}",
        ("rank", "outside_mpi_s", "mpi_s", "of_it_sampled_s"),
        rows,
        plot("stacked_by_rank", blocks.first, parts, mean=mean),
        (WIDTH, 3.4),
    )


SECTIONS: tuple[tuple[str, tuple[Maker, ...]], ...] = (
    (
        "Interference",
        (
            running_slowdown,
            shutters,
            wall_time,
            slowdown_by_rank,
            sensitivity,
        ),
    ),
    (
        "Time in MPI",
        (
            rank_timeline,
            calls,
            calls_by_rank,
            call_sites,
            imbalance,
        ),
    ),
    ("Messages", (matrix, sizes, timeline)),
    ("Network", (levels,)),
)
"""Headings, and the functions that make the figures below them."""
OF_TRACES = (timeline, rank_timeline)
"""Functions that also need the profile's file, to find its trace."""
MOST_RANKS = 10_000_000
DAMAGE = (ArithmeticError, LookupError, ValueError)
"""Errors that NumPy raises on impossible numbers in a damaged profile."""


def figures(profile: Profile, file: str | None = None) -> list[tuple[str, list[Figure | Gap]]]:
    """All figures and gaps of a profile, by sections.

    Result: pairs of a heading and a list with a `Figure` or a `Gap` for each possible figure. Raises
    `DataError` if the job has no ranks, or more than `MOST_RANKS`.
    """
    _check_ranks(profile)
    with stage("computing", sum(len(makers) for _, makers in SECTIONS), "figures"):
        made = ((heading, [_made(make, profile, file) for make in makers]) for heading, makers in SECTIONS)
        return [(heading, [one for one in section if one is not None]) for heading, section in made]


def _made(make: Maker, profile: Profile, file: str | None) -> Figure | Gap | None:
    try:
        made = make(profile, file)
    except DAMAGE as error:
        raise DataError(
            f"the profile's tables contradict each other ({error}): the file is damaged"
        ) from error
    count("figures", 1)
    return made


def _check_ranks(profile: Profile) -> None:
    n_ranks = profile.job.n_ranks
    if not 1 <= n_ranks <= MOST_RANKS:
        raise DataError(
            f"figures show 1 to {MOST_RANKS:,} ranks, but the profile has {n_ranks:,}: is it damaged?"
        )
    for name in ("ranks", "call_sites", "cycles"):
        ranks = profile.tables[name]["rank"]
        if len(ranks) and not 0 <= ranks.min() <= ranks.max() < n_ranks:
            raise DataError(
                f"table {name} names ranks that a job of {n_ranks:,} does not have: the file is damaged"
            )
