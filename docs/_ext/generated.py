"""Reference pages written from the code before each build, so that none of it is written twice.

`pages()` gives every page as text; Sphinx writes them to ``docs/reference/generated/``.
"""

import dataclasses
import re
import tomllib
from pathlib import Path

import message_list

from mpicoloc import config, errors
from mpicoloc.cli import arguments, main as cli
from mpicoloc.core import profile
from mpicoloc.pairing import features

FOLDER = Path(__file__).resolve().parent.parent / "reference" / "generated"
WIDTH_COLUMNS = 70
"""With the margin of a man page, a terminal of 80."""


def table(header, rows):
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell(text) for text in line) + " |" for line in lines) + "\n"


def cell(text):
    """Text that may stand in a Markdown table."""
    return str(text).replace("|", "\\|").replace("\n", " ")


def code(text):
    return f"`{text}`" if str(text) else ""


def option_rows(options):
    """One row per option of the table in ``mpicoloc/config.py``."""
    for option in options:
        default = "" if option.default is None else option.default
        if option.type is bool:
            default = int(option.default)
        bounds = " or ".join(map(code, option.choices))
        if option.minimum > -float("inf"):
            bounds = f"{option.minimum:g} to {option.maximum:g}"
        unit = "" if option.unit == "1" else option.unit
        yield code(option.flag), code(option.env), code(default), unit, bounds, option.help


def options_page():
    header = ["flag", "environment variable", "default", "unit", "allowed", "meaning"]
    job, site = (table(header, option_rows(rows)) for rows in (config.OPTIONS, config.SITE_OPTIONS))
    return "# Options\n\n" + OPTIONS_INTRO + job + "\n## Of no job\n\n" + SITE_INTRO + site


OPTIONS_INTRO = """\
Every option is a flag of `mpicoloc run` and of `python -m mpicoloc.wrap`, and an environment variable of the
job. A flag wins over the variable. With `LD_PRELOAD` alone only the variables exist. Generated from
`mpicoloc/config.py`.

"""

SITE_INTRO = """\
Options of single commands; each takes the flag or the variable. `mpicoloc price` and `mpicoloc ledger charge`
also take `--rate-su` and `--pricing`.

"""


def cli_page():
    """What all verbs have in common, and their list."""
    rows = [
        (group, f"[mpicoloc {verb}](cli/{verb}.md)", words)
        for group, verbs in cli.GROUPS.items()
        for verb, (_, words) in verbs.items()
    ]
    toc = "\n".join(f"cli/{verb}" for verb in cli.VERBS)
    toc = f"```{{toctree}}\n:hidden:\n:maxdepth: 1\n\n{toc}\n```\n"
    return "\n".join(["# Command line\n", CLI_INTRO, table(["group", "command", "what it does"], rows), toc,
                      "## Flags of every command\n", FLAGS, "## Exit codes\n", exit_codes()])  # fmt: skip


def verb_page(verb):
    """Help of a verb and of the words that may follow it, as argparse prints it."""
    child = cli.build_parser(verb)[1]
    parts = [f"# mpicoloc {verb}\n", help_block(child)]
    for name, grandchild in arguments.actions_of(child).items():
        parts += [f"## mpicoloc {verb} {name}\n", help_block(grandchild)]
    return "\n".join(parts)


def help_block(parser):
    parser.formatter_class = lambda prog: arguments.Formatter(prog, width=WIDTH_COLUMNS)
    return f"```text\n{parser.format_help().rstrip()}\n```\n"


CLI_INTRO = """\
Results go to standard output, everything else to standard error. Generated from the parsers of
`mpicoloc/cli/`.
"""

FLAGS = """\
`-h` shows what the command does, its arguments, and examples. `-q` keeps all but results and errors back,
`-v` tells what is done and how long each part takes; both may stand before the command or behind it. What
follows the application's name in `mpicoloc run` is the application's own.

Work that takes longer than half a second shows how far it has come, if standard error is a terminal.
`NO_COLOR=1` takes the colours away, `TERM=dumb` all that moves, and `FORCE_COLOR=1` colours a pipe. On a
narrow terminal tables leave lesser columns out and name them; in a pipe they have 120 columns.
"""


def exit_codes():
    """Exit codes, from the classes of ``mpicoloc/errors.py``."""
    kinds = (errors.UsageError, errors.DataError, errors.EnvironmentFault)
    rows = [("0", "done")]
    negative = "nothing to instrument with, not enough units, a profile changed after signing"
    rows += [("1", f"a negative answer: {negative}")]
    rows += [(str(kind.exit_code), kind.__doc__.splitlines()[0]) for kind in kinds]
    note = "`mpicoloc run` and `python -m mpicoloc.wrap` return the application's own exit code.\n"
    return table(["code", "meaning"], rows) + "\n" + note


def facts_table(kind):
    """Attributes of one HDF5 group: the fields of the dataclass it is written from."""
    rows = []
    for field in dataclasses.fields(kind):
        kind_text = str(field.type).split(" | ")[0]
        if kind_text in ("Estimate",) or kind_text.startswith("tuple"):
            continue
        rows.append((code(field.name), {"str": "text"}.get(kind_text, kind_text), unit_of(field.name)))
    return table(["attribute", "type", "unit"], rows)


def unit_of(name):
    """Unit by the suffix of a name; the names carry it."""
    units = {"_s": "s", "_su": "SU", "_bytes": "bytes", "_ns": "ns", "_bps": "bytes/s"}
    return next((unit for end, unit in units.items() if name.endswith(end)), "")


def profile_page():
    """Layout of the HDF5 file."""
    parts = ["# Profile file\n", PROFILE_INTRO.format(version=profile.SCHEMA_VERSION)]
    unmeasured = "Absent when the slowdown was not measured; `reason` says why."
    groups = (
        ("/job", profile.Job, ""),
        ("/mpi", profile.MpiSummary, ""),
        ("/interference", profile.Interference, ""),
        ("/interference/slowdown", profile.Estimate, unmeasured),
        ("/price", profile.Price, ""),
        (
            "/network",
            profile.Network,
            "Absent when no topology was known. Groups `L0`, `L1`, ... below.",
        ),
        ("/network/L0", profile.NetworkLevel, ""),
    )
    for name, kind, note in groups:
        about = (kind.__doc__ or "").split("\n\n")[0].strip()
        about = re.sub(r"(?m)^ +", "", about)
        parts += [f"### {name}\n", about, "", *([note, ""] if note else []), facts_table(kind)]
    parts += ["## Tables\n", TABLES_INTRO]
    for name, columns in profile.COLUMNS.items():
        rows = [(code(c.name), code(c.type), "" if c.unit == "1" else c.unit, c.meaning) for c in columns]
        about = profile.ROWS[name]
        parts += [
            f"### /{name}\n",
            f"{about[0].upper()}{about[1:]}.\n",
            table(["column", "type", "unit", "meaning"], rows),
        ]
    return "\n".join(parts)


PROFILE_INTRO = """\
One HDF5 file per job, schema version {version}. Generated from `mpicoloc/core/`.

The root has the attributes `format` (always `mpicoloc profile`), `schema_version`, `partial` (the job or a
part of it ended without `MPI_Finalize`) and `notes` (what a reader should know, in sentences).

## Groups

Facts are attributes of groups. A fact that was not measured has no attribute. The attribute `NAME.unit`
beside a number says its unit.
"""

TABLES_INTRO = """\
Each table is one compound dataset of one dimension below the root, empty when there is nothing to tell. Its
attribute `description` says what a row is, `COLUMN.unit` and `COLUMN.description` what a column is. A column
without a unit is a number, a name or a text. Types are those of NumPy: `i4` is a signed integer of 4 bytes,
`u8` an unsigned one of 8, `f8` a double, `S40` a text of at most 40 bytes, UTF-8, filled up with zeros.
"""


def features_page():
    """What slowdown models look at."""
    rows = [(code(q.name), "" if q.unit == "1" else q.unit, q.meaning, q.over) for q in features.QUANTITIES]
    return "# Features\n\n" + FEATURES_INTRO + table(["name", "unit", "meaning", "statistics over"], rows)


FEATURES_INTRO = """\
What slowdown models may look at, in `mpicoloc/pairing/features.py`. Each has four statistics: `NAME_mean`,
`NAME_min`, `NAME_max` and `NAME_sd`. One that was not measured is absent. Other events that
`--counters` names have `EVENT_per_s` and `EVENT_per_ki`, too.

"""


def json_page():
    """Examples and keys of what commands print with `--json`."""
    documents = tomllib.loads(JSON_OUTPUT.read_text(encoding="utf-8"))
    parts = ["## Keys of several documents\n", SHARED_INTRO, meanings_table(documents.pop("shared"))]
    for name, document in documents.items():
        heading = document.get("heading", f"mpicoloc {name} --json")
        parts.append(f"{'###' if ' ' in name else '##'} {heading}\n")
        if "about" in document:
            parts.append(f"{document['about']}\n")
        if "example" in document:
            parts += [f"```json\n{document['example']}```\n", meanings_table(document["keys"])]
    return "\n".join(parts)


def meanings_table(meanings):
    """Keys of a JSON document; several in one row are separated by commas."""
    rows = ((", ".join(map(code, keys.split(", "))), meaning) for keys, meaning in meanings.items())
    return table(["key", "meaning"], rows)


JSON_OUTPUT = Path(config.__file__).with_name("core") / "json_output.toml"
SHARED_INTRO = """\
They have these meanings unless a document's own table gives another.
"""


def pages():
    """All generated pages: name and text."""
    verbs = {f"cli/{verb}": verb_page(verb) for verb in cli.VERBS}
    pages = {"options": options_page(), "cli": cli_page(), "profile": profile_page()}
    pages |= {"features": features_page(), "json": json_page(), "messages": message_list.page()}
    return pages | verbs


def write_pages(app=None):
    """Write the pages whose text has changed."""
    (FOLDER / "cli").mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        path = FOLDER / f"{name}.md"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def setup(app):
    """Entry of the Sphinx extension."""
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True}
