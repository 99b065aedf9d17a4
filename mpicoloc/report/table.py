"""A profile as tables for the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text

from mpicoloc.core import sums
from mpicoloc.core.estimate import Estimate
from mpicoloc.core.profile import Profile
from mpicoloc.core.tables import Table, printable, text
from mpicoloc.model.counted import LEAST_THREADS_FRAC
from mpicoloc.report.listing import Listing
from mpicoloc.report.summary import co_runners
from mpicoloc.store import places
from mpicoloc.store.signature import Signature

OVERFLOWS = ("n_site_overflow", "n_cycle_overflow", "n_peer_overflow", "n_lane_overflow")
N_TOP = 8
"""Rows of a table that may be long; the last line says how many were left out."""
_LARGEST_CLASS = 64


def show(profile: Profile, console: Console, signature: Signature | None = None) -> None:
    """Print the profile."""
    console.print(render(profile, signature))


def render(profile: Profile, signature: Signature | None = None) -> Group:
    """The profile as one renderable."""
    parts: list[RenderableType] = [_job(profile, signature), "", _result(profile), ""]
    for part in (
        _network(profile),
        _regions(profile),
        _calls(profile),
        _sites(profile),
        _sizes(profile),
        _counted(profile),
        _co_runners(profile),
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
    if found.slowdown is None:
        yield f"slowdown not measured: {found.reason or 'reason unknown'}; priced like an unshared run"
    if found.coverage_frac is not None and found.coverage_frac < 0.8 and found.slowdown is not None:
        yield f"only {found.coverage_frac:.0%} of the time was measured; the rest counts as slowed alike"
    if found.meter_reason and found.slowdown is not None and found.slowdown.method != "alone":
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


def _job(profile: Profile, signature: Signature | None) -> RichTable:
    job, mpi = profile.job, profile.mpi
    share = "not measured" if mpi.time_frac is None else f"{mpi.time_frac:.1%} of the time in MPI"
    calls = "" if mpi.n_calls is None else f", {mpi.n_calls:,} calls"
    moved = (
        ""
        if mpi.sent_bytes is None
        else f", {amount(mpi.sent_bytes)} sent, {amount(mpi.recv_bytes)} received"
    )
    return _grid(f"job {_word(job.id)}{' (partial)' if profile.partial else ''}", [
        ("command", job.command),
        ("size", f"{job.n_ranks} ranks on {job.n_nodes} node{'s'[: job.n_nodes != 1]}, {job.n_cores} cores"),
        ("wall time", seconds(job.wall_s)),
        ("MPI", share + calls + moved),
        ("library", job.mpi_library),
        ("signature", signed(signature)),
    ])  # fmt: skip


def signed(signature: Signature | None) -> str:
    """What a profile says of its signature; only the holder of the key can check it."""
    if signature is None:
        return "unsigned"
    when = datetime.fromtimestamp(signature.signed_unix_s, UTC).isoformat(" ", "seconds")
    return f"signed with key {signature.key_id}, {when} (to check: mpicoloc verify)"


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


def _of_ranks(ranks: Table) -> list[tuple[str, str]]:
    """The ranks that suffered least and most by themselves, where they differ."""
    known = ranks[~np.isnan(ranks["slowdown"])]
    if len(known) < 2:
        return []
    ends = (known[int(np.argmin(known["slowdown"]))], known[int(np.argmax(known["slowdown"]))])
    shown = " to ".join(f"{row['slowdown']:.3f} (rank {row['rank']})" for row in ends)
    return [("by rank", f"{shown}, with co-runners")]


def _result(profile: Profile) -> RichTable:
    found, price = profile.interference, profile.price
    rows = [("slowdown", estimate(found.slowdown))]
    rows += [("", f"{estimate(other)}") for other in found.alternatives]
    rows += _of_ranks(profile.tables["ranks"])
    if found.n_taken:
        entries = {text(entry) for entry in profile.tables["nodes"]["entry"] if entry}
        counted = f" ({', '.join(sorted(entries))})" if found.meter == "loop" and entries else ""
        rows.append(("shutters", f"{found.n_taken} taken, {found.n_used} valid, "
                                 f"meter {found.meter}{counted}"))  # fmt: skip
    if found.shared_s:
        rows.append(("shared", f"{seconds(found.shared_s)} with a co-runner"))
    if found.overhead_frac:
        rows.append(
            ("overhead", f"{found.overhead_frac:.2%} of the time, by shutters of others and by counting")
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


def estimate(value: Estimate | None) -> str:
    """An estimate in words."""
    if value is None:
        return "not measured"
    if value.method == "alone":
        return "1 (alone on its nodes)"
    return (
        f"{value.value:.3f} ({value.low:.3f} to {value.high:.3f}, 95 %), {value.n} shutters, {value.method}"
    )


def _regions(profile: Profile) -> RichTable | None:
    regions = sums.by_region(profile.tables["regions"])
    if not len(regions):
        return None
    listing = Listing("regions of the application", ("region", "times", "time", "in MPI"))
    for row in regions[:N_TOP]:
        share = int(row["mpi_ns"]) / int(row["time_ns"]) if row["time_ns"] else 0.0
        listing.add_row(_word(text(row["name"])), f"{row['n']:,}", _time(row["time_ns"]), f"{share:.1%}")
    return _left_out(listing, len(regions))


def _calls(profile: Profile) -> RichTable | None:
    calls = sums.by_function(profile.tables["call_sites"])
    if not len(calls):
        return None
    total_ns = float(calls["time_ns"].sum(dtype=float))
    listing = Listing(
        "MPI time by function",
        ("function", "calls", "time", "share", "mean", "longest", "bytes"),
        lesser=("longest", "mean", "bytes", "calls"),
    )
    for row in calls[:N_TOP]:
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
    return _left_out(listing, len(calls))


def _time(value_ns: float) -> str:
    return seconds(float(value_ns) * 1e-9)


def _sites(profile: Profile) -> RichTable | None:
    sites = sums.by_site(profile.tables["call_sites"])
    if not len(sites):
        return None
    listing = Listing(
        "call sites",
        ("site", "function", "calls", "time", "bytes"),
        names=("site", "function"),
        lesser=("bytes", "calls"),
    )
    top = sites[:N_TOP]
    for row, place in zip(top, call_places(profile, top), strict=True):
        numbers = [
            f"{row['n']:,}",
            _time(row["time_ns"]),
            amount(int(row["sent_bytes"]) + int(row["recv_bytes"])),
        ]
        listing.add_row(_word(place), _word(text(row["call"])), *numbers)
    return _left_out(listing, len(sites))


def call_places(profile: Profile, sites: Table) -> list[str]:
    """Where calls are made, as function, file and line if that is known, else as an offset in a file."""
    modules = [(text(row["path"]), text(row["build_id"])) for row in profile.tables["modules"]]
    keys = [(int(row["i_module"]), int(row["offset"])) for row in sites]
    found, _ = places.resolve(modules, keys)
    paths = [path for path, _ in modules]
    offsets = [places.offset_in(paths, *key) for key in keys]
    names = ["(others)" if row["i_site"] == 0 else offset for row, offset in zip(sites, offsets, strict=True)]
    return [str(place) or name for place, name in zip(found, names, strict=True)]


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


def _co_runners(profile: Profile) -> RichTable | None:
    rows = co_runners(profile)
    if not rows:
        return None
    listing = Listing("co-runners", ("job", "together"))
    for name, overlap_s in rows[:N_TOP]:
        listing.add_row(_word(name), seconds(overlap_s))
    return _left_out(listing, len(rows))


def _left_out(listing: RichTable, n_rows: int) -> RichTable:
    if n_rows > N_TOP:
        listing.caption = f"{n_rows - N_TOP} more"
    return listing


def counted(n: int, what: str) -> str:
    """So many of something: ``1 job``, ``2 jobs``."""
    return f"{n:,} {what}{'s'[: n != 1]}"


def seconds(value_s: float) -> str:
    """A time in the unit that reads best."""
    if not math.isfinite(value_s):
        return "-"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value_s >= scale:
            return f"{value_s / scale:.4g} {unit}" if value_s < 1e4 else f"{value_s:,.0f} s"
    return f"{value_s * 1e9:.0f} ns" if value_s else "0 s"


def amount(n_bytes: float | int | np.integer | None) -> str:
    """Bytes in the binary unit that reads best."""
    if n_bytes is None:
        return "-"
    value = float(n_bytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.4g} {unit}"
