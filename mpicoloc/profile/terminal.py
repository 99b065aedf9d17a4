"""A profile as tables for the terminal."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text

from mpicoloc.bubble import shutters
from mpicoloc.core.bubbles import MAX_LEVEL
from mpicoloc.core.counters import LEAST_THREADS_FRAC
from mpicoloc.core.profile import Estimate, Job, Profile, Table, rank_time_s
from mpicoloc.core.units import amount, counted, ends, seconds
from mpicoloc.errors import printable
from mpicoloc.measure import processor
from mpicoloc.measure.advice import advice
from mpicoloc.network.utilisation import by_wall_time
from mpicoloc.profile.signature import Signature
from mpicoloc.profile.summary import co_runners
from mpicoloc.profile.symbolize import site_words
from mpicoloc.show.figures import hosts
from mpicoloc.show.table import Column, listing
from mpicoloc.trace import sums

N_HOSTS = 8
"""Largest number of hosts to list by name."""
_VERSION = re.compile(r"(.+?)(?:\s+version\s*:\s*|\s+v(?=\d))([^\s,]+)(?:, package:.*)?(.*)", re.IGNORECASE)


def facts(profile: Profile, signature: Signature | None, n_hosts: int | None) -> list[tuple[str, str]]:
    """Rows of name and text about the job, with at most `n_hosts` hosts; None means all hosts."""
    job, mpi = profile.job, profile.mpi
    words = ["not measured" if mpi.time_frac is None else f"{mpi.time_frac:.1%} of the time in MPI"]
    if mpi.n_calls is not None:
        words.append(counted(mpi.n_calls, "call"))
    if mpi.sent_bytes is not None:
        words.append(f"{amount(mpi.sent_bytes)} sent, {amount(mpi.recv_bytes)} received")
    return [
        ("command", job.command),
        ("began", began(job)),
        ("user", job.user or "not known"),
        ("hosts", _hosts(profile, n_hosts)),
        ("size", f"{counted(job.n_ranks, 'rank')} on {counted(job.n_nodes, 'node')}, "
                 f"{counted(job.n_cores, 'core')}"),
        ("library", library(job.mpi_library)),
        ("wall time", seconds(job.wall_s)),
        ("MPI", ", ".join(words)),
        *([] if signature is None else [("signature", signed(signature))]),
    ]  # fmt: skip


def heading_line(profile: Profile) -> str:
    """Start, user and hosts of the job; unknown ones are left out."""
    job = profile.job
    known = [began(job) if job.start_unix_s > 0 else "", f"user {job.user}" if job.user else ""]
    names = _hosts(profile, 3)
    return ", ".join(filter(None, [*known, f"on {names}" if hosts(profile) else ""]))


def began(job: Job) -> str:
    """Start of the job, in the reader's time zone."""
    if job.start_unix_s <= 0:
        return "not known"
    try:
        return datetime.fromtimestamp(job.start_unix_s).astimezone().isoformat(" ", "seconds")
    except (OverflowError, OSError, ValueError):  # a foreign profile can have any number
        return "?"


def _hosts(profile: Profile, n_hosts: int | None) -> str:
    names = list(dict.fromkeys(hosts(profile).values()))
    more = "" if n_hosts is None or len(names) <= n_hosts else f" and {len(names) - n_hosts:,} more"
    return ", ".join(names[:n_hosts]) + more if names else "not known"


def library(name: str) -> str:
    """An MPI library's name and version, from a text that has more, such as MPICH's whole table."""
    match = _VERSION.fullmatch(name.strip())
    return " ".join((f"{match[1]} {match[2]}{match[3]}" if match else name).split())


def signed(signature: Signature) -> str:
    """The signature as the profile states it; only the holder of the key can verify it."""
    when = datetime.fromtimestamp(signature.signed_unix_s, UTC).isoformat(" ", "seconds")
    return f"signed with key {printable(signature.key_id)}, {when} (to check: mpicoloc verify)"


OVERFLOWS = ("n_site_overflow", "n_cycle_overflow", "n_peer_overflow", "n_lane_overflow")
N_TOP = 8
"""Number of rows to show of a long table. Its last line gives the number of other rows, and the flag that
shows them."""
_LARGEST_CLASS = 64


def show(
    profile: Profile, console: Console, signature: Signature | None = None, n_top: int | None = N_TOP
) -> None:
    """Print the profile, with at most `n_top` rows of each long table; None means all rows."""
    console.print(render(profile, signature, n_top))


def render(profile: Profile, signature: Signature | None = None, n_top: int | None = N_TOP) -> Group:
    """The profile as one object that rich can print."""
    job = f"job {_word(profile.job.id)}{' (partial)' if profile.partial else ''}"
    parts: list[RenderableType] = [
        _grid(job, facts(profile, signature, n_top)),
        "",
        _grid("interference and price", result(profile)),
        "",
    ]
    for part in (
        _network(profile),
        _ranks(profile, n_top),
        _regions(profile, n_top),
        _calls(profile, n_top),
        _sites(profile, n_top),
        _sizes(profile),
        _counted(profile),
        _co_runners(profile, n_top),
    ):
        if part is not None:
            parts += [part, ""]
    parts += [Text(f"note: {printable(note)}", style="yellow") for note in notes(profile)]
    parts += [Text(f"advice: {printable(words)}", style="green") for words in advice(profile)]
    return Group(*parts)


def notes(profile: Profile) -> Iterable[str]:
    """Caveats that a reader must know before using the numbers."""
    found = profile.interference
    if profile.partial:
        yield "partial: not every rank reached MPI_Finalize; totals cover only what was recorded"
    yield from profile.notes
    if (note := processor.delay_note(profile)) is not None:
        yield note
    if found.coverage_frac is not None and found.coverage_frac < 0.8 and found.slowdown is not None:
        yield f"only {found.coverage_frac:.0%} of the time was measured; the rest is assumed to be as slow"
    has_meter = found.meter != "none" if found.slowdown is None else found.slowdown.method != processor.ALONE
    if found.meter_reason and has_meter:
        yield f"meter {found.meter}: {found.meter_reason}"
    lost = sum(_total(profile, name) for name in OVERFLOWS)
    if lost:
        yield f"{counted(lost, 'record')} went to overflow rows because a table was full"
    unknown = _total(profile, "n_collective_overflow")
    if unknown:
        yield f"the traffic lacks {unknown:,} collectives, which had two groups or no room in the tables"
    dropped = _total(profile, "n_events_dropped")
    if dropped:
        offered = _total(profile, "n_events")
        which = "the oldest of each rank (see --trace)"
        if not len(profile.tables["events"]):
            which = "because they came too fast (see --trace-ring)"
        yield f"trace: {dropped:,} of {offered:,} events were dropped, {which}"


def _total(profile: Profile, column: str) -> int:
    return int(profile.tables["ranks"][column].sum())


def _word(word: str) -> str:
    """A text of the profile, escaped so that neither the terminal nor rich's markup interprets it."""
    return escape(printable(word))


def _grid(title: str, rows: Iterable[tuple[str, str]]) -> RichTable:
    grid = RichTable(
        title=title, title_justify="left", title_style="bold", box=None, show_header=False, pad_edge=False
    )
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(name, _word(value))
    return grid


def _network(profile: Profile) -> RichTable | None:
    """Load of the job on each level of the network."""
    found = profile.network
    if found is None:
        return None
    rows = [("topology", found.topology), ("demand", found.demand_class or "unknown")]
    for row in found.levels:
        used = (
            "" if row.utilisation_frac is None else f", {row.utilisation_frac:.2%} of what its hosts can use"
        )
        by_wall = by_wall_time(row.utilisation_frac, found.duration_s, profile.job.wall_s)
        used += "" if by_wall is None else f" ({by_wall:.2%} by wall time)"
        rows.append((f"L{row.level}", amount(row.sent_bytes) + used))
    by = "" if found.duration_s is None else f", over {found.duration_s:.4g} s, {profile.time_alone_by}"
    return _grid(f"network ({found.traffic}{by})", rows)


def _of_ranks(ranks: Table, job: Estimate | None) -> Iterable[tuple[str, str]]:
    """The smallest and largest slowdowns of single ranks, if they differ."""
    known = ranks[~np.isnan(ranks["slowdown"])]
    if len(known) < 2:
        return
    ends = (known[int(np.argmin(known["slowdown"]))], known[int(np.argmax(known["slowdown"]))])
    shown = " to ".join(f"{row['slowdown']:.3f} (rank {row['rank']})" for row in ends)
    is_outside = job is not None and not ends[0]["slowdown"] <= job.value <= ends[1]["slowdown"]
    why = "; the job's covers all of its time, even alone, paused and in long waits" if is_outside else ""
    yield "by rank", f"{shown}, of their time with co-runners{why}"


def result(profile: Profile) -> Iterable[tuple[str, str]]:
    """Rows of name and text on interference and price. A row without a name continues the previous row."""
    found, price = profile.interference, profile.price
    why_none = f"not measured: {found.reason or 'reason unknown'}"
    yield "slowdown", why_none if found.slowdown is None else estimate(found.slowdown)
    for other in found.alternatives:
        yield "other meter", estimate(other)
    yield from _of_ranks(profile.tables["ranks"], found.slowdown)
    if found.n_taken:
        several = "; each meter uses those with enough data" if found.alternatives else ""
        yield "shutters", f"{found.n_taken} taken, {found.n_used} valid, meter {found.meter}{several}"
    bubbles = [*_bubbles(profile)]
    yield from bubbles
    if found.shared_s:
        yield "shared", f"{seconds(found.shared_s)} with a co-runner"
    if found.overhead_frac:
        causes = ["shutters of others"]
        causes += ["counting"] * (found.meter == "count") + ["bubbles"] * bool(bubbles)
        yield "overhead", f"{found.overhead_frac:.2%} of the time, by {' and '.join(causes)}"
    if price is not None:
        interval = ends(price.fair_low_su, price.fair_high_su, ".4g")
        interval = f" ({interval})" if interval else ""
        yield (
            "price",
            (
                f"{price.fair_su:.4g} SU{interval}, discount {price.discount_frac:.1%} "
                f"on {price.runtime_su:.4g} SU by run time"
            ),
        )
        unshared = "" if found.slowdown is not None else ", priced as unshared"
        yield "", f"pricing {price.pricing}, {price.rate_su:g} SU per core and hour{unshared}"


def _bubbles(profile: Profile) -> Iterable[tuple[str, str]]:
    """Slowdown beside bubbles in the job's shutters, a row for each level; and the job's score."""
    if not shutters.ran_any(profile.tables["shutters"]):
        if reason := shutters.why_none(profile):
            yield "bubbles", f"none: {reason}"
        return
    bubbled = shutters.from_tables(profile.tables, profile.job.command)
    where = " on all nodes" if profile.job.n_nodes > 1 else ""
    no_curve = bubbled.reason and f"; no curve: {bubbled.reason}"
    yield "bubbles", f"in {counted(bubbled.n_taken, 'shutter')}{where}{no_curve}"
    if bubbled.curve is not None:
        names = ("levels", "slowdown", "low", "high")
        for level, value, low, high in zip(
            *(getattr(bubbled.curve, name)[1:] for name in names), strict=True
        ):
            interval = ends(low, high)
            yield "", f"beside level {level:g}: {value:.3f}" + (f" ({interval}, 95 %)" if interval else "")
    score = bubbled.score
    if score is None:
        yield "bubble score", f"none: {bubbled.score_reason}"
    else:
        yield (
            "bubble score",
            f"{score.value:.1f}{' or more' if score.value >= MAX_LEVEL else ''} "
            f"({score.low:.1f} to {score.high:.1f}, 95 %), {counted(score.n, 'shutter')}",
        )


def estimate(value: Estimate) -> str:
    """An estimate in words."""
    if value.method == processor.ALONE:
        return processor.ALONE_WORDS
    shutters = counted(value.n, "shutter")
    interval = ends(value.low, value.high)
    words = f"{value.value:.3f} ({interval}, 95 %)" if interval else f"{value.value:.3f}"
    return f"{words}, {shutters}, {value.method}"


def _ranks(profile: Profile, n_top: int | None) -> RichTable | None:
    """Time in MPI and total time, for each rank and for all ranks together."""
    ranks = profile.tables["ranks"]
    if not len(ranks):
        return None
    names = hosts(profile)
    host = [Column("host", lambda row: row[1], is_name=True, left_out=1)] if len(names) > 1 else []
    columns = (
        Column("rank", lambda row: row[0], is_name=True),
        *host,
        Column("application", lambda row: row[2], seconds),
        Column("MPI", lambda row: row[3], seconds),
        Column("share", lambda row: _part(row[3], row[2]), ".1%"),
    )
    more = _more(len(ranks), n_top, " with less time in MPI")
    order = np.argsort(-ranks["mpi_ns"].astype(float) if more else ranks["rank"], kind="stable")
    times_s = np.stack([rank_time_s(ranks), ranks["mpi_ns"] * 1e-9], axis=1)
    rows = [
        (str(row["rank"]), names.get(int(row["i_node"]), "-"), *of_rank)
        for row, of_rank in zip(ranks[order][:n_top], times_s[order][:n_top].tolist(), strict=True)
    ]
    rows.append(("all", "", *times_s.sum(axis=0).tolist()))
    return listing(columns, rows, "time of the ranks", more)


def _regions(profile: Profile, n_top: int | None) -> RichTable | None:
    columns = (
        Column("region", "name"),
        Column("times", "n", ","),
        Column("time", "time_ns", _time),
        Column("in MPI", lambda row: _part(row["mpi_ns"], row["time_ns"]), ".1%"),
    )
    return _top(columns, sums.by_region(profile.tables["regions"]), n_top, "regions of the application")


def _part(part: float, whole: float) -> float | None:
    return float(part) / float(whole) if whole else None


def _time(value_ns: float) -> str:
    return seconds(float(value_ns) * 1e-9)


def _calls(profile: Profile, n_top: int | None) -> RichTable | None:
    calls = sums.by_function(profile.tables["call_sites"])
    total_ns = float(calls["time_ns"].sum(dtype=float))

    def sampled(row: np.void, value_ns: float) -> str:
        return "~" * bool(row["n_timed"] < row["n"]) + _time(value_ns)

    columns = (
        Column("function", "call"),
        Column("calls", "n", ",", left_out=4),
        Column("time", lambda row: sampled(row, row["time_ns"])),
        Column("share", lambda row: _part(row["time_ns"], total_ns), ".1%"),
        Column(
            "mean", lambda row: sampled(row, row["time_ns"] / row["n"] if row["n"] else math.nan), left_out=2
        ),
        Column("longest", "max_ns", _time, left_out=1),
        Column("bytes", _moved, left_out=3),
    )
    is_sampled = (calls["n_timed"] < calls["n"]).any()
    notes = ["~ all calls are counted, but only a random sample is timed"] if is_sampled else []
    return _top(columns, calls, n_top, "MPI time by function", notes)


def _moved(row: np.void) -> str:
    return amount(int(row["sent_bytes"]) + int(row["recv_bytes"]))


def _sites(profile: Profile, n_top: int | None) -> RichTable | None:
    found = sums.by_site(profile.tables["call_sites"])
    names = [name or offset for name, offset in site_words(profile, found[:n_top])]
    words = {row.tobytes(): name for row, name in zip(found[:n_top], names, strict=True)}
    columns = (
        Column("site", lambda row: words[row.tobytes()], is_name=True),
        Column("function", "call", is_name=True),
        Column("calls", "n", ",", left_out=2),
        Column("time", "time_ns", _time),
        Column("bytes", _moved, left_out=1),
    )
    return _top(columns, found, n_top, "call sites")


def _sizes(profile: Profile) -> RichTable | None:
    columns = (
        Column("size", "size_class", _size),
        Column("messages", "n", ","),
        Column("bytes", form=amount),
    )
    return _top(columns, sums.by_size(profile.tables["peers"]), None, "point-to-point messages by size")


def _size(size_class: int) -> str:
    """The range of message sizes of a class as text."""
    last_class = min(int(size_class), _LARGEST_CLASS)
    if last_class <= 0:
        return "empty"
    low, last = 1 << last_class - 1, (1 << last_class) - 1
    return amount(low) if low == last else f"{amount(low)} to {amount(last)}"


def _counted(profile: Profile) -> RichTable | None:
    """Hardware event counts of all ranks over the whole run."""
    events = sums.by_event(profile.tables["counters"])
    instructions = sum(float(row["value"]) for row in events if row["event"] == b"instructions")
    rate = Column("per 1,000 instructions", lambda row: 1000 * float(row["value"]) / instructions, ",.4g")
    columns = (
        Column("event"),
        Column("times", "value", ",.0f"),
        *([rate] if instructions > 0 else []),
        Column("of the time", lambda row: _part(row["running_s"], row["enabled_s"]), ".0%", left_out=1),
    )
    cpu_s = float(events["cpu_s"].max(initial=0.0))
    is_late = float(events["enabled_s"].min(initial=np.inf)) < LEAST_THREADS_FRAC * cpu_s
    notes = ["threads that existed before MPI_Init are not counted"] if is_late else []
    return _top(columns, events, None, "events over the whole run", notes)


def _co_runners(profile: Profile, n_top: int | None) -> RichTable | None:
    columns = (
        Column("job", "id"),
        Column("together", "overlap_s", seconds),
        Column("slowdown by it", "slowdown", processor.slowdown_words),
    )
    return _top(columns, co_runners(profile), n_top, "co-runners")


def _top(
    columns: Sequence[Column], rows: Any, n_top: int | None, title: str, notes: Sequence[str] = ()
) -> RichTable | None:
    """The first rows as a table, with the number of other rows; None if there are no rows."""
    if not len(rows):
        return None
    return listing(columns, rows[:n_top], title, [*notes, *_more(len(rows), n_top)])


def _more(n_rows: int, n_top: int | None, what: str = "") -> list[str]:
    return [] if n_top is None or n_rows <= n_top else [f"{n_rows - n_top:,} more{what} (--all)"]
