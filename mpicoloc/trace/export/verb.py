"""Convert a profile to the format of another tool.

Trace formats need the profile of a job that was run with --trace; the others do not.

  mpicoloc export job.h5 --format perfetto --out job.json
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import importlib.util
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mpicoloc import messages
from mpicoloc.cli.arguments import bounded
from mpicoloc.core.progress import stage
from mpicoloc.errors import DataError, EnvironmentFault, UsageError, remedy

if TYPE_CHECKING:
    from mpicoloc.profile.frames import Frames


@dataclass(frozen=True)
class Format:
    """A format: name, description, the module that writes it, and the pip name of the library it needs."""

    name: str
    help: str
    module: str
    library: str = ""
    event_bytes: int = 0
    """Approximate size of a traced event in the output; 0: the format has no events."""
    is_trace: bool = False
    """Whether it consists of a trace only."""
    is_folder: bool = False
    """Whether it is a folder of several files."""


CLUSTERCOCKPIT = "clustercockpit"
FORMATS: Mapping[str, Format] = {
    row.name: row
    for row in (
        Format("perfetto", "JSON file for ui.perfetto.dev and chrome://tracing", "perfetto", "", 190, True),
        Format("paraver", "files .prv, .pcf and .row", "paraver", "", 170, True),
        Format(
            "otf2",
            "folder, an archive for Vampir, Scalasca ...",
            "otf2_archive",
            "otf2",
            event_bytes=50,
            is_trace=True,
            is_folder=True,
        ),
        Format("json", "one file with all facts and tables", "json_file"),
        Format("parquet", "folder with a file for each table", "parquet", "pyarrow", 11, is_folder=True),
        Format("prometheus", "text file of the facts, for a node exporter", "prometheus"),
        Format(CLUSTERCOCKPIT, "key numbers in the line protocol of ClusterCockpit", CLUSTERCOCKPIT),
        Format("xdmod", "job summary for Open XDMoD, one line of JSON", "xdmod"),
    )
}
FORMAT_HELP = "; ".join(f"{row.name}: {row.help}" for row in FORMATS.values())
PACKED = ("perfetto", "paraver", "json")
"""Formats that are compressed if PATH ends with .gz."""
_LARGE_BYTES = 100 << 20
ALIASES = {"chrome": "perfetto"}


def find_format(name: str) -> Format:
    """The format of this name.

    Raises `UsageError` if it does not exist. Raises `EnvironmentFault` if its library is not installed.
    """
    known = ALIASES.get(name, name)
    if known not in FORMATS:
        close = difflib.get_close_matches(name, FORMATS, n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise UsageError(f"no format {name!r}{hint}; the formats are {', '.join(FORMATS)}")
    found = FORMATS[known]
    if found.library and importlib.util.find_spec(found.library) is None:
        raise EnvironmentFault(
            f"format {found.name} needs the package {found.library}: pip install {found.library}, "
            f"or {remedy('export')} for all formats"
        )
    return found


def size_warning(job: Frames, wanted: Format, out: str) -> str:
    """A sentence on the size of the output; empty if it is small.

    Raises `DataError` if the trace is damaged.
    """
    from mpicoloc.core.units import amount

    n = _n_events(job, wanted) or len(job.profile.tables["events"])
    n_bytes = n * wanted.event_bytes
    if n_bytes < _LARGE_BYTES:
        return ""
    packed = ""
    if wanted.name in PACKED:
        packed = f", a sixth of it or less as {out}.gz"
        if out.endswith(".gz"):
            n_bytes, packed = n_bytes // 6, ""
    free = shutil.disk_usage(os.path.dirname(os.path.abspath(out))).free
    return f"{n:,} events take about {amount(n_bytes)}{packed}; {amount(free)} are free there"


def _n_events(job: Frames, wanted: Format) -> int | None:
    """Number of events in the trace of every call, if the output contains it."""
    if not wanted.event_bytes or not job.is_traced or len(job.profile.tables["events"]):
        return None
    try:
        return job.trace.n_events
    except DataError:
        # Formats with all tables then lack only the trace, and report that themselves.
        if wanted.is_trace:
            raise
        return None


def write_format(job: Frames, wanted: Format, out: str | os.PathLike[str], **tags: str) -> list[str]:
    """Write `job` to `out` in this format; returns sentences on what is left out. Errors are the writer's."""
    module = importlib.import_module(f"mpicoloc.trace.export.{wanted.module}")
    with stage(f"writing {wanted.name}", _n_events(job, wanted) if wanted.is_trace else None, "events"):
        return list(module.write(job, os.fspath(out), **tags) or ())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("file", metavar="FILE", help="profile that a job wrote, mpicoloc-<job id>.h5")
    parser.add_argument("--format", metavar="FORMAT", help=FORMAT_HELP)
    parser.add_argument("--out", metavar="PATH", required=True, help="file or folder to write")
    parser.add_argument("--cluster", metavar="NAME", help=f"name of the cluster, for {CLUSTERCOCKPIT}")


@bounded
def run(args: argparse.Namespace) -> int:
    """Write the profile in the format; returns 0."""
    from mpicoloc.profile.frames import open_profile
    from mpicoloc.show import outputs

    if args.format is None:
        raise UsageError(f"--format is missing: give one of {', '.join(FORMATS)}")
    wanted = find_format(args.format)
    if args.cluster and wanted.name != CLUSTERCOCKPIT:
        raise UsageError(
            f"--cluster applies only to --format {CLUSTERCOCKPIT}, got {wanted.name}: leave it out"
        )
    outputs.check(args.out, [args.file], is_folder=wanted.is_folder)
    job = open_profile(args.file)
    if warning := size_warning(job, wanted, args.out):
        messages.note(warning)
    tags = {"cluster": args.cluster} if args.cluster else {}
    for note in write_format(job, wanted, args.out, **tags):
        messages.note(note)
    return 0
