"""A profile as a self-contained HTML page, without scripts, in light and dark, usable with screen readers."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

import mpicoloc
from mpicoloc.core.profile import Profile
from mpicoloc.core.progress import count, stage
from mpicoloc.core.units import counted, ends, seconds
from mpicoloc.errors import printable
from mpicoloc.measure import processor
from mpicoloc.measure.advice import advice
from mpicoloc.profile.signature import Signature
from mpicoloc.profile.summary import co_runners
from mpicoloc.profile.terminal import N_HOSTS, facts, heading_line, notes, result
from mpicoloc.show import drawing
from mpicoloc.show.figures import Cell, Figure, Gap
from mpicoloc.show.templates import template

N_ROWS = 200
"""Largest number of rows of a figure's data on the page."""
_SVG, _XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_LINKS = re.compile(r"(url\(#|^#)")
VARIABLES = {drawing.INK: "--ink", drawing.FAINT: "--faint", drawing.PAPER: "--paper"}
VARIABLES |= {word: f"--s{i}" for i, word in enumerate(drawing.SERIES)}
_COLOURS = re.compile("|".join(VARIABLES))


def page(
    profile: Profile,
    sections: Sequence[tuple[str, Sequence[Figure | Gap]]],
    signature: Signature | None = None,
) -> str:
    """The page as HTML. All texts of the profile are escaped, so that none becomes markup."""
    with stage("drawing", sum(isinstance(one, Figure) for _, parts in sections for one in parts), "figures"):
        drawn = [_section(name, parts) for name, parts in sections]
    return template("page.html").render(
        job=profile.job,
        id=printable(profile.job.id),
        line=printable(heading_line(profile)),
        partial=profile.partial,
        version=mpicoloc.__version__,
        cards=_cards(profile),
        facts=_facts(profile, signature),
        notes=[printable(note) for note in notes(profile)],
        advice=[printable(words) for words in advice(profile)],
        company=[
            (printable(one.id), seconds(one.overlap_s), processor.slowdown_words(one.slowdown))
            for one in co_runners(profile)[:50]
        ],
        sections=drawn,
        most_rows=N_ROWS,
    )


def _cards(profile: Profile) -> list[tuple[str, str, str]]:
    """The most important numbers: name, number, and an explanation."""
    slowdown, price, mpi = profile.interference.slowdown, profile.price, profile.mpi
    known = slowdown is not None and slowdown.method != processor.ALONE
    interval = "" if slowdown is None else ends(slowdown.low, slowdown.high)
    of_slowdown = ("not measured", profile.interference.reason) if slowdown is None else (
        f"{slowdown.value:.3f}",
        (interval and f"{interval} (95 %)") if known else "no co-runner under mpicoloc",
    )  # fmt: skip
    of_price = ("not priced", "") if price is None else (
        f"{price.fair_su:.4g} SU", f"{price.discount_frac:.1%} off {price.runtime_su:.4g} SU by run time",
    )  # fmt: skip
    share = "not measured" if mpi.time_frac is None else f"{mpi.time_frac:.1%}"
    calls = "" if mpi.n_calls is None else counted(mpi.n_calls, "call")
    job = profile.job
    size = f"{job.n_ranks:,} rank{'s'[: job.n_ranks != 1]}, {job.n_nodes:,} node{'s'[: job.n_nodes != 1]}"
    cards = [
        ("Slowdown by co-runners", *of_slowdown),
        ("Price", *of_price),
        ("Time in MPI", share, calls),
        ("Wall time", seconds(job.wall_s), size),
    ]
    return [(name, number, printable(more)) for name, number, more in cards]


def _facts(profile: Profile, signature: Signature | None) -> list[tuple[str, str]]:
    """The rows of the terminal output, each with a name."""
    rows = [*facts(profile, signature, N_HOSTS), *result(profile)]
    named = itertools.accumulate(rows, lambda before, row: (row[0] or before[0], row[1]))
    return [(name[:1].upper() + name[1:], printable(words)) for name, words in named]


def _section(name: str, parts: Sequence[Figure | Gap]) -> dict[str, Any]:
    """The figures below one heading in the template's form, and the missing figures grouped by reason."""
    missing: dict[str, list[str]] = {}
    for one in parts:
        if isinstance(one, Gap):
            missing.setdefault(printable(one.reason), []).append(one.title)
    return {
        "heading": name,
        "parts": [_part(one) for one in parts if isinstance(one, Figure)],
        "missing": [("; ".join(titles), reason) for reason, titles in missing.items()],
    }


def _part(figure: Figure) -> dict[str, Any]:
    count("figures", 1)
    return {
        "name": figure.name,
        "title": figure.title,
        "text": printable(figure.description),
        "picture": inlined(figure),
        "header": list(map(printable, figure.header)),
        "rows": [list(map(_cell, row)) for row in figure.rows[:N_ROWS]],
        "n_rows": len(figure.rows),
    }


def _cell(cell: Cell) -> str:
    if cell is None:
        return "not known"
    return (
        printable(cell) if isinstance(cell, str) else f"{cell:,}" if isinstance(cell, int) else f"{cell:.6g}"
    )


def inlined(figure: Figure) -> Markup:
    """The figure as an inline SVG element: with title and description, the page's colours, and unique ids."""
    root = ET.fromstring(drawing.svg(figure, titled=False))
    for tag in ("metadata", "title"):
        for child in root.findall(f"{{{_SVG}}}{tag}"):
            root.remove(child)
    for element in root.iter():
        for style in element.findall(f"{{{_SVG}}}style"):
            element.remove(style)
        for name, value in list(element.attrib.items()):
            element.set(name, _in_page(figure.name, name, value))
    for name in ("width", "height"):
        del root.attrib[name]
    names = {"title": figure.title, "desc": figure.description}
    for i, (tag, words) in enumerate(names.items()):
        label = ET.Element(f"{{{_SVG}}}{tag}", {"id": f"{figure.name}-{tag}"})
        label.text = printable(words)
        root.insert(i, label)
    root.set("role", "img")
    root.set("aria-labelledby", " ".join(f"{figure.name}-{tag}" for tag in names))
    ET.register_namespace("", _SVG)
    ET.register_namespace("xlink", _XLINK)
    return Markup(ET.tostring(root, encoding="unicode"))


def _in_page(figure: str, name: str, value: str) -> str:
    """An attribute's value for the page: ids get the figure's name, and colours become CSS variables."""
    if name == "id":
        return f"{figure}-{value}"
    if name == "style":
        value = _COLOURS.sub(lambda word: f"var({VARIABLES[word[0]]})", value)
    return _LINKS.sub(rf"\g<1>{figure}-", value)
