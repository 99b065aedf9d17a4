"""Figures of the load of jobs on a fat-tree, as in Jokanovic 2014, chapters 3 and 4."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpicoloc.core.names import names_apart
from mpicoloc.core.network import Levelled, Topology
from mpicoloc.core.units import amount
from mpicoloc.errors import printable
from mpicoloc.network import utilisation
from mpicoloc.network.characterise import Case, Shared
from mpicoloc.network.utilisation import most_sharing_jobs
from mpicoloc.show.figures import Bars, Figure, Row, plot, short

LEAVES = "leaves subtrees of each level"
ABSENT = float("nan")
"""Value of a bar to which no case belongs; a case whose value is unknown has None."""


@dataclass(frozen=True)
class Labelled:
    """A case with labels that distinguish it: its `group` of bars, and its `series`, which has one colour."""

    case: Case
    job: str
    tree: str
    placement: str
    group: str
    series: str

    def row(self) -> tuple[str, str, str]:
        """The first cells of each row of a table."""
        return printable(self.case.job.id), str(self.case.topology), printable(self.case.placement_name)


def figures(cases: Sequence[Case], shared: Shared | None) -> list[Figure]:
    """All figures of these cases: levels, links, windows and sharing."""
    known = labelled(cases, shared is not None)
    made = [_total(known), _available(known), _injection(known), _utilisation(known), _classes(known)]
    made += [_links(known), _most_sharing(known)]
    # Rates over time do not depend on the slimming, so one figure serves all trees.
    timed = _first_of(
        [one for one in known if one.case.windows is not None], lambda one: (one.job, one.placement)
    )
    made += [_windows(one, i if len(timed) > 1 else None) for i, one in enumerate(timed, 1)]
    if shared is not None:
        made.append(_sharing(known, shared))
    return made


def labelled(cases: Sequence[Case], together: bool) -> list[Labelled]:
    """Labels for each case."""
    ids = list(dict.fromkeys(case.job.id for case in cases))
    jobs = dict(zip(ids, names_apart([short(job) for job in ids]), strict=True))
    n_trees = len({case.topology for case in cases})
    apart = len({case.placement_name for case in cases}) > 1 and not together
    out = []
    for case in cases:
        job = jobs[case.job.id]
        tree, placement = tree_name(case.topology), short(case.placement_name)
        words = [job] if len(jobs) > 1 else []
        words += [tree] if n_trees > 1 or len(jobs) == 1 else []
        words += [] if apart else [placement]
        out.append(Labelled(case, job, tree, placement, "\n".join(words), placement if apart else ""))
    return out


def tree_name(tree: Levelled) -> str:
    """Name of a tree: S8, as in the thesis, if every switch has 8 uplinks; otherwise the list of w."""
    if not isinstance(tree, Topology):
        return "irregular"
    ups = set(tree.w[1:])
    return f"S{ups.pop()}" if len(ups) == 1 else "w=" + ",".join(map(str, tree.w))


def _unique(words: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(words))


def _words(known: Sequence[Labelled]) -> str:
    """The properties that all cases share, for descriptions."""
    jobs = _unique([one.job for one in known])
    tree = known[0].case.topology
    which = f"job {jobs[0]}" if len(jobs) == 1 else f"{len(jobs)} jobs"
    m = f"XGFT({tree.height};{','.join(map(str, tree.m))};w)" if isinstance(tree, Topology) else tree
    return f"{which} on {m}"


def _by_level(
    known: Sequence[Labelled],
    value: Callable[[Labelled, int], float | None],
    keys: Sequence[tuple[str, str]] | None = None,
) -> list[Bars]:
    """A panel of bars for each level; `keys`, if given, replace the group and series of each case."""
    keys = keys or [(one.group, one.series) for one in known]
    groups, names = (_unique(words) for words in zip(*keys, strict=True))
    panels = []
    for level in range(known[0].case.topology.height):
        found = {key: value(one, level) for key, one in zip(keys, known, strict=True)}
        values = [[found.get((group, name), ABSENT) for name in names] for group in groups]
        panels.append(Bars(f"L{level}", groups, names, values))
    return panels


def _of_levels(
    name: str,
    title: str,
    description: str,
    column: str,
    known: Sequence[Labelled],
    value: Callable[[Labelled, int], float | None],
    keys: Sequence[tuple[str, str]] | None = None,
    **look: Any,
) -> Figure:
    """A figure with a panel for each level and a row for each case and level."""
    height = known[0].case.topology.height
    rows = [(*one.row(), level, value(one, level)) for one in known for level in range(height)]
    label = title[:1].lower() + title[1:]
    draw = plot("panels_of_bars", _by_level(known, value, keys), label=label, **look)
    text = f"{description} Levels L0 (hosts) to L{height - 1}; {_words(known)}."
    header = ("job_id", "topology", "placement", "level", column)
    return Figure(name, title, text, header, tuple(rows), draw, (6.0, 1.3 + 1.25 * height))


def _first_of(known: Sequence[Labelled], key: Callable[[Labelled], object]) -> list[Labelled]:
    """The first case with each value of the key."""
    return list({key(one): one for one in reversed(known)}.values())[::-1]


def _keys_of_placements(known: Sequence[Labelled]) -> list[tuple[str, str]]:
    """Group and series of each case: its placement and job, or its own group if no case has a series."""
    together = all(not one.series for one in known)
    return [(one.group, "") if together else (one.placement, one.job) for one in known]


def _total(known: Sequence[Labelled]) -> Figure:
    trees = _first_of(known, lambda one: one.case.topology)
    return _of_levels(
        "bandwidth",
        "Bandwidth of the whole network",
        "Bandwidth of all links of a level in one direction, for each slimming, on a logarithmic axis "
        "(Jokanovic 2014, Figure 3.1).",
        "total_bps",
        trees,
        lambda one, level: float(utilisation.total_bps(one.case.topology)[level]),
        [(one.tree, "") for one in trees],
        unit="B/s",
        log=True,
    )


def _available(known: Sequence[Labelled]) -> Figure:
    return _of_levels(
        "available",
        "Bandwidth available to the job's hosts",
        "Bandwidth of the links that leave the job's own subtrees; 0 if the whole job is in one subtree; "
        "on a logarithmic axis (Jokanovic 2014, Figures 3.4 and 3.5).",
        "available_bps",
        known,
        lambda one, level: one.case.levels[level].available_bps,
        unit="B/s",
        log=True,
    )


def _injection(known: Sequence[Labelled]) -> Figure:
    apart = _first_of(known, lambda one: (one.job, one.placement))
    return _of_levels(
        "injection",
        "Injection rate",
        "Bytes per second that leave the subtrees of each level, on a logarithmic axis "
        "(Jokanovic 2014, Figure 3.3).",
        "injection_bps",
        apart,
        lambda one, level: one.case.levels[level].injection_bps,
        _keys_of_placements(apart),
        unit="B/s",
        log=True,
    )


def _utilisation(known: Sequence[Labelled]) -> Figure:
    low, high = utilisation.LIMITS
    return _of_levels(
        "utilisation",
        "Utilisation of each level",
        f"Injection rate over available bandwidth, on a logarithmic axis; lines at {low:.0%} and {high:.0%}, "
        "where moderate and extreme demand begin (Jokanovic 2014, Figure 3.6).",
        "utilisation_frac",
        known,
        lambda one, level: one.case.levels[level].utilisation_frac,
        unit="%",
        log=True,
        limits=dict(zip(utilisation.CLASSES[1:], utilisation.LIMITS, strict=True)),
    )


def _classes(known: Sequence[Labelled]) -> Figure:
    """Largest utilisation of each case on the levels above L0, in descending order."""
    rows: list[Row] = []
    for one in known:
        used = [row.utilisation_frac for row in one.case.levels[1:]]
        most = None if None in used else max([0.0, *(x for x in used if x is not None)])
        rows.append((*one.row(), most, utilisation.demand_class(one.case.levels)))
    order = sorted(range(len(rows)), key=lambda i: -(rows[i][3] or 0.0))  # type: ignore[operator]
    labels = [" ".join([*known[i].group.split("\n"), known[i].series]).strip() for i in order]
    draw = plot("ranked", labels, [rows[i][3] for i in order], utilisation.LIMITS, utilisation.CLASSES)
    text = (
        "Largest utilisation above L0, and the class of demand by it (Jokanovic 2014, Figure 3.7); "
        f"{_words(known)}."
    )
    header = ("job_id", "topology", "placement", "max_utilisation_frac", "demand_class")
    size = (6.0, 1.2 + 0.24 * len(rows))
    return Figure("classes", "Classes of demand", text, header, tuple(rows[i] for i in order), draw, size)


QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


def _links(known: Sequence[Labelled]) -> Figure:
    """Distribution of bytes over the loaded links."""
    rows: list[Row] = []
    for one in known:
        loads = one.case.loads
        for level in range(one.case.topology.height):
            for way, side in (("up", loads.up[level]), ("down", loads.down[level])):
                loaded = side[side > 0]
                ends = np.quantile(loaded, QUANTILES).tolist() if len(loaded) else [None] * len(QUANTILES)
                rows.append((*one.row(), one.case.routing, level, way, len(side), len(loaded), *ends))
    height, n_sides = known[0].case.topology.height, 2 * known[0].case.topology.height
    labels = [" ".join([*one.group.split("\n"), one.series]).strip() for one in known]
    ends_of_side = [[row[-len(QUANTILES) :] for row in rows[k::n_sides]] for k in range(n_sides)]
    levels = [(f"L{k}", *ends_of_side[2 * k : 2 * k + 2]) for k in range(height)]
    text = (
        "Bytes on the loaded links of each level: minimum, quartiles and maximum, on a logarithmic axis; "
        f"{_words(known)}, routing {known[0].case.routing}."
    )
    ends_of = [f"{word}_bytes" for word in ("least", "quarter", "median", "three_quarters", "most")]
    header = ("job_id", "topology", "placement", "routing", "level", "way", "n_links", "n_loaded", *ends_of)
    return Figure(
        "links",
        "Load of the links",
        text,
        header,
        tuple(rows),
        plot("boxes", labels, levels),
        (6.0, 1.3 + 1.4 * height),
    )


def _most_sharing(known: Sequence[Labelled]) -> Figure:
    apart = _first_of(known, lambda one: (one.job, one.placement))
    most = {id(one): most_sharing_jobs(one.case.topology, one.case.placement) for one in apart}
    return _of_levels(
        "sharing-most",
        "Jobs that could share links",
        "Most jobs of one host each with which the job could share links of a level "
        "(Jokanovic 2014, Eq. 4.2).",
        "n_jobs",
        apart,
        lambda one, level: int(most[id(one)][level]),
        _keys_of_placements(apart),
        unit="",
    )


def _sharing(known: Sequence[Labelled], shared: Shared) -> Figure:
    n_jobs = shared.sharing.n_jobs()
    i_job = {id(one): i for i, one in enumerate(known)}
    return _of_levels(
        "sharing",
        "Jobs that do share links",
        "Number of other jobs with which each job shares links of a level.",
        "n_jobs",
        known,
        lambda one, level: int(n_jobs[level, i_job[id(one)]]),
        unit="",
    )


def _windows(one: Labelled, number: int | None) -> Figure:
    """Rates and bytes in transit over time."""
    found = one.case.windows
    assert found is not None
    n_levels = found.injection_bps.shape[1]
    start_s = np.arange(len(found.in_transit_bytes)) * found.window_s
    columns = (start_s, *found.injection_bps.T, found.in_transit_bytes)
    rows = tuple(zip(*(column.tolist() for column in columns), strict=True))
    duration_s = one.case.job.wall_s or len(start_s) * found.window_s
    mean = float(found.in_transit_bytes.sum()) * found.window_s / duration_s
    draw = plot("windows", found.window_s, found.injection_bps, found.in_transit_bytes, mean, LEAVES)
    which = f"{one.job}, {one.placement}"
    text = (
        "Bytes per second that leave the subtrees of each level, and bytes in transit, in windows of "
        f"{found.window_s:g} s from the first message on; {amount(mean)} are in transit on average "
        f"over the job's {duration_s:.4g} s (Jokanovic 2014, Eq. 2.1); {which}."
    )
    header = ("start_s", *(f"L{level}_bps" for level in range(n_levels)), "in_transit_bytes")
    name = "windows" if number is None else f"windows-{number}"
    return Figure(name, f"Over time: {which}", text, header, rows, draw, (6.0, 4.2))
