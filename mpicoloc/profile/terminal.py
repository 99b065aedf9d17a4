"""A profile as tables for the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text

from mpicoloc.bubble import production
from mpicoloc.core.bubbles import MAX_LEVEL
from mpicoloc.core.counters import LEAST_THREADS_FRAC
from mpicoloc.core.cpu_list import parse_cpus
from mpicoloc.core.estimate import Estimate
from mpicoloc.core.profile import Profile
from mpicoloc.core.tables import Table, printable, text
from mpicoloc.core.units import amount, counted, seconds
from mpicoloc.measure import processor
from mpicoloc.profile import heading, sites
from mpicoloc.profile.signature import Signature
from mpicoloc.profile.summary import co_runners
from mpicoloc.show.blocks import hosts
from mpicoloc.show.listing import Listing
from mpicoloc.trace import sums

OVERFLOWS = ("n_site_overflow", "n_cycle_overflow", "n_peer_overflow", "n_lane_overflow")
N_TOP = 8
"""Rows of a table that may be long; the last line says how many were left out, and how to see them."""
_LARGEST_CLASS = 64


def show(
    profile: Profile, console: Console, signature: Signature | None = None, n_top: int | None = N_TOP
) -> None:
    """Print the profile; long tables have `n_top` rows, None: all."""
    console.print(render(profile, signature, n_top))


def render(profile: Profile, signature: Signature | None = None, n_top: int | None = N_TOP) -> Group:
    """The profile as one renderable."""
    parts: list[RenderableType] = [_job(profile, signature, n_top), "", _result(profile), ""]
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
    return Group(*parts)


def notes(profile: Profile) -> Iterable[str]:
    """What a reader must know before using the numbers."""
    found = profile.interference
    if profile.partial:
        yield "partial: the job did not end by MPI_Finalize on every rank; totals are of what was recorded"
    yield from profile.notes
    yield from _without_processor(profile)
    if found.slowdown is None:
        yield f"slowdown not measured: {found.reason or 'reason unknown'}; priced like an unshared run"
    if found.coverage_frac is not None and found.coverage_frac < 0.8 and found.slowdown is not None:
        yield f"only {found.coverage_frac:.0%} of the time was measured; the rest counts as slowed alike"
    has_meter = found.meter != "none" if found.slowdown is None else found.slowdown.method != processor.ALONE
    if found.meter_reason and has_meter:
        yield f"meter {found.meter}: {found.meter_reason}"
    lost = sum(_total(profile, name) for name in OVERFLOWS)
    if lost:
        yield f"{lost:,} records went to overflow rows because a table was full"
    unknown = _total(profile, "n_collective_overflow")
    if unknown:
        yield f"{unknown:,} collectives, between two groups or beyond the tables, are in no traffic"
    dropped = _total(profile, "n_events_dropped")
    if dropped:
        offered = _total(profile, "n_events")
        which = "the oldest of each rank (see --trace)"
        if not len(profile.tables["events"]):
            which = "because they came too fast (see --trace-ring)"
        yield f"trace: {dropped:,} of {offered:,} events were dropped, {which}"


def _without_processor(profile: Profile) -> Iterable[str]:
    """What a job lost to processes that nobody measured it beside."""
    job, found = profile.job, profile.interference
    method = None if found.slowdown is None else found.slowdown.method
    frac = processor.notable_run_delay_frac(method, job.wall_s, job.n_ranks, found.cpu_s, found.run_delay_s)
    if frac is None:
        return
    cpus = profile.tables["nodes"]["cpus"]
    # A list that fills its cell may have been cut off.
    n_cpus = [len(parse_cpus(text(cell))) if len(cell) < cpus.dtype.itemsize else 0 for cell in cpus]
    crowd = processor.most_crowded_node(profile.tables["ranks"], n_cpus)
    why = (
        "processes without mpicoloc, the job's own threads, or a limit on processor time took it"
        if crowd is None
        else f"{crowd[0]} ranks share {counted(crowd[1], 'processor')} of their node"
    )
    of_wall = (found.cpu_s or 0.0) / (job.wall_s * job.n_ranks)
    n_taken = found.involuntary_switches
    taken = "" if n_taken is None else f", taken away {n_taken:,} times"
    yield (
        f"the ranks had no processor for {frac:.0%} of the time that they were ready to run (processor time "
        f"{of_wall:.0%} of wall time{taken}): {why}; what that cost the job is not measured"
    )


def _total(profile: Profile, column: str) -> int:
    return int(profile.tables["ranks"][column].sum())


def _word(word: str) -> str:
    """A word of the profile, which neither the terminal nor the markup may obey."""
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


def _job(profile: Profile, signature: Signature | None, n_top: int | None) -> RichTable:
    job, mpi = profile.job, profile.mpi
    share = "not measured" if mpi.time_frac is None else f"{mpi.time_frac:.1%} of the time in MPI"
    calls = "" if mpi.n_calls is None else f", {mpi.n_calls:,} calls"
    moved = (
        ""
        if mpi.sent_bytes is None
        else f", {amount(mpi.sent_bytes)} sent, {amount(mpi.recv_bytes)} received"
    )
    rows = heading.facts(profile, n_top)
    rows += [("wall time", seconds(job.wall_s)), ("MPI", share + calls + moved)]
    rows += [] if signature is None else [("signature", heading.signed(signature))]
    return _grid(f"job {_word(job.id)}{' (partial)' if profile.partial else ''}", rows)


def _network(profile: Profile) -> RichTable | None:
    """What the job did to each level of the network."""
    found = profile.network
    if found is None:
        return None
    rows = [("topology", found.topology), ("demand", found.demand_class or "unknown")]
    for row in found.levels:
        used = (
            "" if row.utilisation_frac is None else f", {row.utilisation_frac:.2%} of what its hosts can use"
        )
        rows.append((f"L{row.level}", amount(row.sent_bytes) + used))
    return _grid(f"network ({found.traffic})", rows)


def _of_ranks(ranks: Table, job: Estimate | None) -> list[tuple[str, str]]:
    """The ranks that suffered least and most by themselves, where they differ."""
    known = ranks[~np.isnan(ranks["slowdown"])]
    if len(known) < 2:
        return []
    ends = (known[int(np.argmin(known["slowdown"]))], known[int(np.argmax(known["slowdown"]))])
    shown = " to ".join(f"{row['slowdown']:.3f} (rank {row['rank']})" for row in ends)
    is_outside = job is not None and not ends[0]["slowdown"] <= job.value <= ends[1]["slowdown"]
    why = "; the job's is of all its time: also alone, paused, and in long waits" if is_outside else ""
    return [("by rank", f"{shown}, of their time with co-runners{why}")]


def _result(profile: Profile) -> RichTable:
    found, price = profile.interference, profile.price
    rows = [("slowdown", estimate(found.slowdown))]
    rows += [("", f"{estimate(other)}") for other in found.alternatives]
    rows += _of_ranks(profile.tables["ranks"], found.slowdown)
    if found.n_taken:
        rows.append(("shutters", f"{found.n_taken} taken, {found.n_used} valid, meter {found.meter}"))
    rows += _bubbles(profile)
    if found.shared_s:
        rows.append(("shared", f"{seconds(found.shared_s)} with a co-runner"))
    if found.overhead_frac:
        rows.append(
            (
                "overhead",
                f"{found.overhead_frac:.2%} of the time, by shutters of others, counting and bubbles",
            )
        )
    if price is not None:
        interval = (
            f" ({price.fair_low_su:.4g} to {price.fair_high_su:.4g})"
            if price.fair_high_su > price.fair_low_su
            else ""
        )
        rows.append(("price", f"{price.fair_su:.4g} SU{interval}, discount {price.discount_frac:.1%} "
                              f"on {price.runtime_su:.4g} SU by run time"))  # fmt: skip
        rows.append(("", f"pricing {price.pricing}, {price.rate_su:g} SU per core and hour"))
    return _grid("interference and price", rows)


def _bubbles(profile: Profile) -> Iterable[tuple[str, str]]:
    """What the job suffered from bubbles in its shutters, a line for each level, and how much it presses."""
    if not production.ran_any(profile):
        if reason := production.why_none(profile):
            yield "bubbles", f"none: {reason}"
        return
    bubbled = production.of_profile(profile, profile.job.command)
    where = " on all nodes" if profile.job.n_nodes > 1 else ""
    no_curve = bubbled.reason and f"; no curve: {bubbled.reason}"
    yield "bubbles", f"in {bubbled.n_taken} shutters{where}{no_curve}"
    if bubbled.curve is not None:
        names = ("levels", "slowdown", "low", "high")
        for level, value, low, high in zip(
            *(getattr(bubbled.curve, name)[1:] for name in names), strict=True
        ):
            yield "", f"beside level {level:g}: {value:.3f} ({low:.3f} to {high:.3f}, 95 %)"
    score = bubbled.score
    if score is None:
        yield "bubble score", f"none: {bubbled.score_reason}"
    else:
        yield (
            "bubble score",
            f"{score.value:.1f}{' or more' if score.value >= MAX_LEVEL else ''} "
            f"({score.low:.1f} to {score.high:.1f}, 95 %), {score.n} shutters",
        )


def estimate(value: Estimate | None) -> str:
    """An estimate in words."""
    if value is None:
        return "not measured"
    if value.method == processor.ALONE:
        return processor.ALONE_WORDS
    return (
        f"{value.value:.3f} ({value.low:.3f} to {value.high:.3f}, 95 %), {value.n} shutters, {value.method}"
    )


def _ranks(profile: Profile, n_top: int | None) -> RichTable | None:
    """Time of each rank inside MPI and in all, and that of all ranks."""
    ranks = profile.tables["ranks"]
    if not len(ranks):
        return None
    names = hosts(profile)
    host = ("host",) if len(names) > 1 else ()
    titles = ("rank", *host, "application", "MPI", "share")
    listing = Listing("time of the ranks", titles, names=titles[:-3], lesser=host)
    is_cut = n_top is not None and len(ranks) > n_top
    order = np.argsort(-ranks["mpi_ns"].astype(float) if is_cut else ranks["rank"], kind="stable")
    for row in ranks[order][:n_top]:
        where = [_word(names.get(int(row["i_node"]), "-"))] if host else []
        listing.add_row(str(row["rank"]), *where, *_times(row["wall_s"], row["mpi_ns"], row["comp_ns"]))
    sums = (float(ranks[name].sum()) for name in ("wall_s", "mpi_ns", "comp_ns"))
    listing.add_row("all", *("" for _ in host), *_times(*sums))
    return _left_out(listing, len(ranks), n_top, "with less time in MPI")


def _times(wall_s: float, mpi_ns: float, comp_ns: float) -> tuple[str, str, str]:
    """Time of a rank, that in MPI, and the share of it, which is of the time that it was not paused."""
    total_ns = float(mpi_ns) + float(comp_ns)
    return seconds(float(wall_s)), _time(mpi_ns), f"{float(mpi_ns) / total_ns:.1%}" if total_ns else "-"


def _regions(profile: Profile, n_top: int | None) -> RichTable | None:
    regions = sums.by_region(profile.tables["regions"])
    if not len(regions):
        return None
    listing = Listing("regions of the application", ("region", "times", "time", "in MPI"))
    for row in regions[:n_top]:
        share = int(row["mpi_ns"]) / int(row["time_ns"]) if row["time_ns"] else 0.0
        listing.add_row(_word(text(row["name"])), f"{row['n']:,}", _time(row["time_ns"]), f"{share:.1%}")
    return _left_out(listing, len(regions), n_top)


def _calls(profile: Profile, n_top: int | None) -> RichTable | None:
    calls = sums.by_function(profile.tables["call_sites"])
    if not len(calls):
        return None
    total_ns = float(calls["time_ns"].sum(dtype=float))
    listing = Listing(
        "MPI time by function",
        ("function", "calls", "time", "share", "mean", "longest", "bytes"),
        lesser=("longest", "mean", "bytes", "calls"),
    )
    for row in calls[:n_top]:
        time_ns, n = int(row["time_ns"]), int(row["n"])
        share = time_ns / total_ns if total_ns else 0.0
        is_sampled = "~" if row["n_timed"] < n else ""
        time, mean = (is_sampled + _time(value_ns) for value_ns in (time_ns, time_ns / n if n else math.nan))
        moved = amount(int(row["sent_bytes"]) + int(row["recv_bytes"]))
        listing.add_row(
            _word(text(row["call"])), f"{n:,}", time, f"{share:.1%}", mean, _time(row["max_ns"]), moved
        )
    if (calls["n_timed"] < calls["n"]).any():
        listing.caption = "~ every call is counted, and some are timed at random"
    return _left_out(listing, len(calls), n_top)


def _time(value_ns: float) -> str:
    return seconds(float(value_ns) * 1e-9)


def _sites(profile: Profile, n_top: int | None) -> RichTable | None:
    found = sums.by_site(profile.tables["call_sites"])
    if not len(found):
        return None
    listing = Listing(
        "call sites",
        ("site", "function", "calls", "time", "bytes"),
        names=("site", "function"),
        lesser=("bytes", "calls"),
    )
    top = found[:n_top]
    for row, (name, offset) in zip(top, sites.words(profile, top), strict=True):
        numbers = [
            f"{row['n']:,}",
            _time(row["time_ns"]),
            amount(int(row["sent_bytes"]) + int(row["recv_bytes"])),
        ]
        listing.add_row(_word(name or offset), _word(text(row["call"])), *numbers)
    return _left_out(listing, len(found), n_top)


def _sizes(profile: Profile) -> RichTable | None:
    sizes = sums.by_size(profile.tables["peers"])
    if not len(sizes):
        return None
    listing = Listing("point-to-point messages by size", ("size", "messages", "bytes"))
    for row in sizes:
        size_class = min(int(row["size_class"]), _LARGEST_CLASS)
        low, last = (1 << size_class - 1, (1 << size_class) - 1) if size_class > 0 else (0, 0)
        size = "empty" if last == 0 else amount(low) if low == last else f"{amount(low)} to {amount(last)}"
        listing.add_row(size, f"{row['n']:,}", amount(row["bytes"]))
    return listing


def _counted(profile: Profile) -> RichTable | None:
    """What the processor counted for the ranks over the whole run."""
    events = sums.by_event(profile.tables["counters"])
    if not len(events):
        return None
    totals = {text(row["event"]): float(row["value"]) for row in events}
    instructions = totals.get("instructions", 0.0)
    per = ("per 1,000 instructions",) if instructions > 0 else ()
    listing = Listing(
        "events over the whole run", ("event", "times", *per, "of the time"), lesser=("of the time",)
    )
    for row in events:
        value, enabled_s = totals[text(row["event"])], float(row["enabled_s"])
        rates = [_number(1000 * value / instructions, ",.4g")] if per else []
        share = f"{row['running_s'] / enabled_s:.0%}" if enabled_s else "-"
        listing.add_row(_word(text(row["event"])), _number(value, ",.0f"), *rates, share)
    cpu_s = float(events["cpu_s"].max())
    if float(events["enabled_s"].min()) < LEAST_THREADS_FRAC * cpu_s:
        listing.caption = "threads that were there before MPI_Init are not counted"
    return listing


def _number(value: float, form: str) -> str:
    return format(value, form) if math.isfinite(value) else "-"


def _co_runners(profile: Profile, n_top: int | None) -> RichTable | None:
    rows = co_runners(profile)
    if not rows:
        return None
    listing = Listing("co-runners", ("job", "together"))
    for name, overlap_s in rows[:n_top]:
        listing.add_row(_word(name), seconds(overlap_s))
    return _left_out(listing, len(rows), n_top)


def _left_out(listing: RichTable, n_rows: int, n_top: int | None, what: str = "") -> RichTable:
    if n_top is not None and n_rows > n_top:
        more = f"{n_rows - n_top:,} more{f' {what}' if what else ''} (--all)"
        listing.caption = f"{listing.caption}\n{more}" if listing.caption else more
    return listing
