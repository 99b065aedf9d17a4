"""Figures of what co-runners did to a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mpicoloc.core.profile import Profile
from mpicoloc.core.tables import VERDICTS
from mpicoloc.measure import processor
from mpicoloc.measure.convergence import running_slowdowns
from mpicoloc.measure.estimate import split_wall
from mpicoloc.report.figures.blocks import hosts, of_ranks
from mpicoloc.report.figures.figures import WIDTH, Figure, Gap

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

MEANINGS = ("cut short by the job's end", "valid", "a co-runner moved", "a co-runner was paused too late",
            "a co-runner did not answer", "not valid on another node", "a bubble ran in it")  # fmt: skip
"""Of the verdicts, in their order."""
MANY_DOTS = 2000
ALONE = "the job had no co-runner under mpicoloc, so its slowdown is 1 without any shutter"


def running_slowdown(profile: Profile) -> Figure | Gap:
    """The estimate as it settles with more shutters."""
    name, title = "slowdown", "Slowdown, as shutters came in"
    found = running_slowdowns(profile, rng=np.random.default_rng(0))
    if not found:
        reason = profile.interference.reason or "for an unknown reason"
        return Gap(name, title, _alone(profile) or f"the slowdown was not measured: {reason}")
    rows = tuple((one.n, one.value, one.low, one.high) for one in found)

    def draw(picture: Picture) -> None:
        from mpicoloc.report.figures import lines

        lines.settling(picture, rows, "valid shutters used")

    final = found[-1]
    description = (
        f"T_co/T_solo estimated from more and more of the job's shutters, with the 95 % interval. With all "
        f"{final.n} it is {final.value:.3f} ({final.low:.3f} to {final.high:.3f}), by {final.method} "
        f"(Breslow et al. 2013, Eq. 6 to 8)."
    )
    return Figure(name, title, description, ("n_shutters", "slowdown", "low", "high"), rows, draw)


def _alone(profile: Profile) -> str | None:
    """Why there is nothing to show of a job without co-runners."""
    found = profile.interference.slowdown
    return ALONE if found is not None and found.method == processor.ALONE else None


def shutters(profile: Profile) -> Figure | Gap:
    """When shutters were taken, and what came of them."""
    name, title = "shutters", "Shutters over time"
    table = profile.tables["shutters"]
    if not len(table):
        none = "the job took no shutters: it had no co-runner, or no node agent, or was short"
        return Gap(name, title, _alone(profile) or none)
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

    def draw(picture: Picture) -> None:
        from mpicoloc.report.figures import lines

        places = [[row[2] for row in rows if row[4] == word] for word in present]
        counted = [f"{labels[word]}: {len(at):,}" for word, at in zip(present, places, strict=True)]
        lines.dots(picture, counted, places, raster=len(rows) > MANY_DOTS)

    n_valid = words.count("valid")
    description = (
        f"Each shutter of the job by its start since the first one, with what came of it; {n_valid:,} of "
        f"{len(rows):,} are valid, which means that every co-runner stood still (Breslow et al. 2013)."
    )
    header = ("hostname", "epoch", "start_s", "duration_s", "verdict", "n_corunners")
    return Figure(name, title, description, header, rows, draw, (WIDTH, 1.5 + 0.4 * len(present)))


def wall_time(profile: Profile) -> Figure | Gap:
    """The job's time alone, shared, in shutters of its own, and paused for those of others."""
    name, title = "wall-time", "Where the wall time went"
    nodes = profile.tables["nodes"]
    if not len(nodes) or profile.job.wall_s <= 0:
        return Gap(name, title, "no node agent watched the job, so its co-runners are unknown")
    split = split_wall(profile.job.wall_s, nodes, profile.tables["shutters"])
    rows = (
        ("without co-runners", split.alone_s),
        ("with co-runners", split.corun_s),
        ("in its own shutters", split.solo_s),
        ("paused for others", split.paused_s),
    )

    def draw(picture: Picture) -> None:
        from mpicoloc.report.figures import bars

        bars.lying(picture, [row[0] for row in rows], [row[1] for row in rows])

    description = (
        f"The {profile.job.wall_s:.4g} s of the job, mean over its nodes, as the node agents saw them."
    )
    return Figure(name, title, description, ("what", "time_s"), rows, draw, (WIDTH, 2.2))


def slowdown_by_rank(profile: Profile) -> Figure | Gap:
    """What each rank suffered by itself."""
    name, title = "slowdown-by-rank", "Slowdown of each rank by itself"
    ranks = profile.tables["ranks"]
    known = np.sort(ranks[~np.isnan(ranks["slowdown"])], order="rank")
    if not len(known):
        none = "no rank has a slowdown of its own: that needs co-runners and shutters enough"
        return Gap(name, title, _alone(profile) or none)
    names = hosts(profile)
    rows = tuple(
        (int(row["rank"]), names.get(int(row["i_node"])), *(float(row[key]) for key in KEYS)) for row in known
    )
    blocks = of_ranks(known["rank"])

    def draw(picture: Picture) -> None:
        from mpicoloc.report.figures import lines

        ends = (blocks.means(known["slowdown"]), blocks.least(known["slowdown_low"]),
                blocks.most(known["slowdown_high"]))  # fmt: skip
        lines.interval_by_rank(picture, blocks.first, *ends, "T_co / T_solo")

    description = (
        f"T_co/T_solo of {len(known):,} of {len(ranks):,} ranks while they had co-runners, with 95 % "
        f"intervals{blocks.words('means, and the widest ends')}."
    )
    header = ("rank", "hostname", "slowdown", "slowdown_low", "slowdown_high")
    return Figure(name, title, description, header, rows, draw, (WIDTH, 3.0))


KEYS = ("slowdown", "slowdown_low", "slowdown_high")
