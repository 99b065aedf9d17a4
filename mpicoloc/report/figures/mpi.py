"""Figures of the time in MPI calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.profile import Profile
from mpicoloc.core.tables import printable, text
from mpicoloc.network.load.windows import spread
from mpicoloc.network.traffic.recorded import CallRows
from mpicoloc.report.figures.blocks import Blocks, of_ranks, short, short_place
from mpicoloc.report.figures.figures import WIDTH, Figure, Gap
from mpicoloc.report.sites import words as place_words
from mpicoloc.trace import times

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

N_CALLS = 7
"""Functions with a colour of their own; the others are one."""
N_BARS = 16
N_LOOKED_UP = 200
"""Call sites whose function and line are looked up."""
N_WINDOWS = 240
"""Windows of the timeline."""
N_LETTERS = 36
"""Of the name of a call site."""
NO_CALLS = "the profile has no call sites: the job made no MPI calls, or no rank left a record"
OTHERS = "others"


def calls(profile: Profile) -> Figure | Gap:
    """Time in each function, all ranks together."""
    name, title = "calls", "Time in MPI by function"
    sites = profile.tables["call_sites"]
    if not len(sites):
        return Gap(name, title, NO_CALLS)
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

    def draw(picture: Picture) -> None:
        from mpicoloc.report.figures import bars

        bars.lying(picture, [short(row[0]) for row in shown], [row[2] for row in shown])

    of_all = "" if len(rows) <= N_BARS else f" The {N_BARS} longest of {len(rows)} are drawn."
    sampled = " Times of some are estimated by sampling." if (sites["n_timed"] < sites["n"]).any() else ""
    description = f"Time inside each MPI function, summed over ranks and threads.{of_all}{sampled}"
    header = ("call", "n_calls", "time_s", "sent_bytes", "recv_bytes")
    return Figure(name, title, description, header, rows, draw, (WIDTH, 1.0 + 0.24 * len(shown)))


def call_sites(profile: Profile) -> Figure | Gap:
    """Time at each place that calls MPI, all ranks together."""
    name, title = "call-sites", "Time in MPI by call site"
    sites = profile.tables["call_sites"]
    if not len(sites):
        return Gap(name, title, NO_CALLS)
    keys = np.empty(len(sites), [("i_site", "?"), ("i_module", "i8"), ("offset", "u8"), ("call", "S40")])
    for key in keys.dtype.names or ():
        keys[key] = sites[key]
    places, of = np.unique(keys, return_inverse=True)
    time_s, n = (np.bincount(of, sites[key].astype(float), len(places)) for key in ("time_ns", "n"))
    order = np.argsort(-time_s, kind="stable")
    words = place_words(profile, places[order], N_LOOKED_UP)
    calls = [printable(text(call)) for call in places[order]["call"]]
    rows = tuple(
        (printable(name) or None, printable(site), call, int(n[i]), time_s[i] * 1e-9)
        for i, (name, site), call in zip(order.tolist(), words, calls, strict=True)
    )
    shown = rows[:N_BARS]

    def draw(picture: Picture) -> None:
        from mpicoloc.report.figures import bars

        calls = [short(f"{row[2].removeprefix('MPI_')}: ") for row in shown]
        room = [max(N_LETTERS - len(call), N_LETTERS // 2) for call in calls]
        names = [short_place(row[0] or row[1], n) for row, n in zip(shown, room, strict=True)]
        labels = [call + name for call, name in zip(calls, names, strict=True)]
        bars.lying(picture, labels, [row[4] for row in shown])

    of_all = "" if len(rows) <= N_BARS else f" The {N_BARS} longest of {len(rows):,} are drawn."
    description = f"Time inside MPI by the place in the program that calls, summed over ranks.{of_all}"
    header = ("place", "site", "call", "n_calls", "time_s")
    return Figure(name, title, description, header, rows, draw, (WIDTH, 1.0 + 0.24 * len(shown)))


def rank_timeline(profile: Profile, file: str | None = None) -> Figure | Gap:
    """What each rank was doing over time; `file` is where the profile was read."""
    name, title = "rank-timeline", "What the ranks did over time"
    found = times.of_trace(times.all_calls, file, profile)
    if isinstance(found, str):
        return Gap(name, title, found)
    if not len(found.rank):
        return Gap(name, title, "the trace has no call")
    first_s = float(found.start_s.min())
    window_s = max((float(found.end_s.max()) - first_s) / N_WINDOWS, 1e-9)
    blocks = of_ranks(np.arange(profile.job.n_ranks))
    names, kind = _longest_functions(found)
    shares = _shares(found, kind, len(names), blocks, first_s, window_s)
    lane, window, kinds = np.nonzero(shares)
    columns = (blocks.first[lane], window * window_s, np.array(names)[kinds], shares[lane, window, kinds])
    rows = tuple(zip(*(column.tolist() for column in columns), strict=True))

    def draw(picture: Picture) -> None:
        from mpicoloc.report.figures import lines

        lines.lanes(picture, blocks.first, shares, [short(word) for word in names], window_s)

    which = "the last calls of each rank" if len(profile.tables["events"]) else "every call"
    description = (
        f"The function in which each rank spent most of its time in MPI, in {N_WINDOWS} windows of "
        f"{window_s:.3g} s of the trace, which has {which}; paler where the rank was outside MPI for a part "
        f"of the window, empty where for all of it{blocks.words('means')}."
    )
    height = 1.5 + min(4.0, max(0.6, 0.22 * len(blocks.first)))
    header = ("rank", "start_s", "call", "time_frac")
    return Figure(name, title, description, header, rows, draw, (WIDTH, height))


def _longest_functions(found: CallRows) -> tuple[list[str], NDArray[np.integer]]:
    """Names of the functions with most time, the last may be `OTHERS`; and the place of each call."""
    total_s = np.bincount(found.kind, found.end_s - found.start_s, len(found.names))
    order = np.argsort(-total_s, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.minimum(np.arange(len(order)), N_CALLS)
    names = [printable(found.names[i]) for i in order[:N_CALLS]]
    return names + [OTHERS] * (len(order) > N_CALLS), place[found.kind]


def _shares(
    found: CallRows, kind: NDArray[np.integer], n_kinds: int, blocks: Blocks, first_s: float, window_s: float
) -> NDArray[np.float64]:
    """Share of each window that each block of ranks was in each function: block x window x function."""
    n_lanes = len(blocks.first)
    start, end = ((times_s - first_s) / window_s for times_s in (found.start_s, found.end_s))
    start, end = np.clip(start, 0, N_WINDOWS), np.clip(end, 0, N_WINDOWS)
    # All blocks and functions one after the other on one axis.
    at = (blocks.of[found.rank] * n_kinds + kind) * float(N_WINDOWS)
    sums = spread(at + start, at + end, end - start, n_lanes * n_kinds * N_WINDOWS)
    sums = sums.reshape(n_lanes, n_kinds, N_WINDOWS).transpose(0, 2, 1)
    n_ranks = np.bincount(blocks.of, minlength=n_lanes)
    return np.where(sums > 1e-9, sums / n_ranks[:, None, None], 0.0)


def calls_by_rank(profile: Profile) -> Figure | Gap:
    """Time in the longest functions, rank by rank."""
    name, title = "calls-by-rank", "Time in MPI by function and rank"
    sites = profile.tables["call_sites"]
    if not len(sites):
        return Gap(name, title, NO_CALLS)
    words, of = np.unique(sites["call"], return_inverse=True)
    total = np.bincount(of, sites["time_ns"].astype(float), len(words))
    place = np.empty(len(words), np.int64)
    place[np.argsort(-total, kind="stable")] = np.minimum(np.arange(len(words)), N_CALLS)
    n_ranks = profile.job.n_ranks
    names = [printable(text(words[int(np.argmax(place == i))])) for i in range(min(len(words), N_CALLS))]
    names += [OTHERS] if len(words) > N_CALLS else []
    cell = place[of] * n_ranks + sites["rank"]
    times = np.bincount(cell, sites["time_ns"] * 1e-9, len(names) * n_ranks).reshape(len(names), n_ranks)
    rows = tuple((rank, *times[:, rank].tolist()) for rank in range(n_ranks))
    blocks = of_ranks(np.arange(n_ranks))

    def draw(picture: Picture) -> None:
        from mpicoloc.report.figures import lines

        parts = [(short(word), blocks.means(row)) for word, row in zip(names, times, strict=True)]
        lines.stacked_by_rank(picture, blocks.first, parts)

    description = f"Time of each rank inside MPI functions, all threads together{blocks.words('means')}."
    return Figure(
        name, title, description, ("rank", *(f"{word}_s" for word in names)), rows, draw, (WIDTH, 3.8)
    )


def imbalance(profile: Profile) -> Figure | Gap:
    """Time of each rank outside and inside MPI."""
    name, title = "imbalance", "Load of the ranks"
    ranks = np.sort(profile.tables["ranks"], order="rank")
    if not len(ranks) or not (ranks["comp_ns"] + ranks["mpi_ns"]).any():
        return Gap(name, title, "no rank left a record of its time")
    comp_s, mpi_s, sampled_s = (ranks[key] * 1e-9 for key in ("comp_ns", "mpi_ns", "sampled_ns"))
    rows = tuple(
        (int(rank), *values)
        for rank, *values in zip(
            ranks["rank"], comp_s.tolist(), mpi_s.tolist(), sampled_s.tolist(), strict=True
        )
    )
    blocks = of_ranks(ranks["rank"])

    def draw(picture: Picture) -> None:
        from mpicoloc.report.figures import lines

        parts = [("outside MPI", blocks.means(comp_s)), ("in MPI", blocks.means(mpi_s))]
        lines.stacked_by_rank(picture, blocks.first, parts, mean=float(comp_s.mean()))

    most, mean = float(comp_s.max()), float(comp_s.mean())
    uneven = f" The longest is {most / mean - 1:.1%} above it." if mean else ""
    description = (
        f"Time of each rank outside and inside MPI{blocks.words('means')}. On the mean {mean:.4g} s are "
        f"outside.{uneven}"
    )
    header = ("rank", "outside_mpi_s", "mpi_s", "of_it_sampled_s")
    return Figure(name, title, description, header, rows, draw, (WIDTH, 3.4))
