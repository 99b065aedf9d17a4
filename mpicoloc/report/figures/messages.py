"""Figures of messages, and of what they do to the network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mpicoloc.core.profile import Profile
from mpicoloc.core.tables import printable
from mpicoloc.core.topology import Placement, Topology
from mpicoloc.core.units import amount
from mpicoloc.network.load import utilisation
from mpicoloc.network.load.windows import windows
from mpicoloc.report.figures.blocks import MOST, hosts, of_ranks, short
from mpicoloc.report.figures.figures import WIDTH, Figure, Gap
from mpicoloc.trace import times

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

N_WINDOWS = 240
"""Windows of the timeline."""
NO_MESSAGES = "no messages were recorded: the job sent none by point-to-point or one-sided calls"


def matrix(profile: Profile) -> Figure | Gap:
    """Who sent how much to whom."""
    name, title = "matrix", "Bytes from rank to rank"
    n_ranks, sent = profile.job.n_ranks, _sent(profile)
    sent = sent[_is_rank(sent["src"], n_ranks) & _is_rank(sent["dst"], n_ranks)]
    if not len(sent):
        return Gap(name, title, NO_MESSAGES)
    of, labels, unit = _parties(profile)
    n = len(labels)
    cell, where = np.unique(of[sent["src"]] * n + of[sent["dst"]], return_inverse=True)
    n_bytes, n_messages = (np.bincount(where, sent[key].astype(float)) for key in ("bytes", "n"))
    src, dst = np.divmod(cell, n)
    columns = (src.tolist(), dst.tolist(), n_messages.tolist(), n_bytes.tolist())
    rows = tuple((labels[i], labels[j], int(m), int(b)) for i, j, m, b in zip(*columns, strict=True))

    def draw(picture: Picture) -> None:
        from mpicoloc.report.figures import lines

        dense = np.zeros((n, n))
        dense[src, dst] = n_bytes
        lines.heat(picture, dense, [short(label) for label in labels], unit)

    scale = " Colours are on a logarithmic scale." if n_bytes.min() < n_bytes.max() else ""
    description = (
        f"Bytes that each {unit} sent to each other one by point-to-point and one-sided calls, without "
        f"collectives; {len(rows):,} pairs have any.{scale}"
    )
    header = (f"src_{unit}", f"dst_{unit}", "n_messages", "sent_bytes")
    return Figure(name, title.replace("rank", unit), description, header, rows, draw, (WIDTH, 4.3))


def _sent(profile: Profile) -> np.ndarray:
    """Messages from `src` to `dst`; what a rank got with MPI_Get was sent by the other one."""
    peers = profile.tables["peers"]
    got = peers[peers["n_got"] > 0].copy()
    for name, other in (("src", "dst"), ("dst", "src"), ("n", "n_got"), ("bytes", "got_bytes")):
        got[name] = peers[peers["n_got"] > 0][other]
    return np.concatenate([peers[peers["n"] > 0], got])


def _is_rank(numbers: np.ndarray, n_ranks: int) -> np.ndarray:
    return (numbers >= 0) & (numbers < n_ranks)


def _parties(profile: Profile) -> tuple[np.ndarray, list[str], str]:
    """The party of each rank: itself, its node, or a block of ranks; their names, and what they are."""
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


def sizes(profile: Profile) -> Figure | Gap:
    """How long messages are."""
    name, title = "message-sizes", "Sizes of messages"
    sent = _sent(profile)
    if not len(sent):
        return Gap(name, title, NO_MESSAGES)
    size_class = sent["size_class"].astype(np.int64).clip(0, 64)
    n, n_bytes = (np.bincount(size_class, sent[key].astype(float), 65) for key in ("n", "bytes"))
    classes = range(int(size_class.min()), int(size_class.max()) + 1)
    rows = tuple((2 ** (c - 1) if c else 0, 2**c if c else 1, int(n[c]), int(n_bytes[c])) for c in classes)

    def draw(picture: Picture) -> None:
        from mpicoloc.report.figures import bars

        labels = [amount(row[0]).replace(" ", "") for row in rows]
        panels = [("messages", "", [row[2] for row in rows]), ("bytes", "B", [row[3] for row in rows])]
        bars.histogram(picture, labels, panels)

    description = (
        "Messages sent by point-to-point and one-sided calls, and their bytes, by size: each bar is of sizes "
        "from its label to twice that."
    )
    header = ("from_bytes", "below_bytes", "n_messages", "sent_bytes")
    return Figure(name, title, description, header, rows, draw, (WIDTH, 4.0))


def timeline(profile: Profile, file: str | None = None) -> Figure | Gap:
    """Messages over time; `file` is where the profile was read, beside which a trace may stand."""
    name, title = "timeline", "Messages over time"
    messages = times.of_trace(times.timed_messages, file, profile)
    if isinstance(messages, str):
        return Gap(name, title, messages)
    if not len(messages.src):
        return Gap(name, title, "the trace has no call that sends to a known rank")
    n_ranks = profile.job.n_ranks
    span_s = float(messages.end_s.max() - messages.start_s.min())
    # Each rank on a host of its own below one switch: everything that is sent leaves a host.
    flat = Topology((max(n_ranks, int(messages.dst.max()) + 1),), (1,), (1.0,))
    found = windows(flat, Placement(np.arange(flat.n_hosts)), messages, max(span_s / N_WINDOWS, 1e-9))
    rates, in_transit = found.injection_bps[:, 0], found.in_transit_bytes
    start_s = np.arange(len(rates)) * found.window_s
    rows = tuple(zip(start_s.tolist(), rates.tolist(), in_transit.tolist(), strict=True))
    mean = float(in_transit.mean())

    def draw(picture: Picture) -> None:
        from mpicoloc.report.figures import lines

        lines.windows(picture, found.window_s, found.injection_bps, in_transit, mean, "sent between ranks")

    description = (
        f"Bytes per second that ranks send each other, and bytes on their way, in {len(rows)} windows of "
        f"{found.window_s:.3g} s of the trace; the line is the mean, {amount(mean)} "
        "(Jokanovic 2014, Eq. 2.1)."
    )
    header = ("start_s", "sent_bps", "in_transit_bytes")
    return Figure(name, title, description, header, rows, draw, (WIDTH, 4.0))


def levels(profile: Profile) -> Figure | Gap:
    """What the job did to each level of its network."""
    name, title = "network", "Utilisation of the network's levels"
    found = profile.network
    if found is None:
        how = (
            "no topology was given: set MPICOLOC_TOPOLOGY for jobs to come, or see "
            "mpicoloc network --topology ... --figures FOLDER for this one"
        )
        return Gap(name, title, how)
    rows = tuple(
        (row.level, row.sent_bytes, row.injection_bps, row.available_bps, row.utilisation_frac)
        for row in found.levels
    )

    def draw(picture: Picture) -> None:
        from mpicoloc.report.figures import bars

        labels = [f"L{row[0]}" for row in rows]
        limits = dict(zip(utilisation.CLASSES[1:], utilisation.LIMITS, strict=True))
        panels = [bars.Bars(printable(found.topology), labels, [""], [[row[4]] for row in rows])]
        bars.panels_of_bars(picture, panels, unit="%", log=True, limits=limits)

    description = (
        f"Share of the bandwidth available to the job's hosts that its messages used on each level, on a "
        f"logarithmic axis; demand {found.demand_class or 'unknown'} (Jokanovic 2014, Figures 3.6 and 3.7). "
        f"Counted: {found.traffic}."
    )
    header = ("level", "sent_bytes", "injection_bps", "available_bps", "utilisation_frac")
    return Figure(name, title, description, header, rows, draw, (WIDTH, 2.8))
