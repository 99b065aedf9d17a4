"""Errors for users: one line that states the problem, the value and the remedy.

    MpicolocError
    ├── Refused            exit code 1   the request is refused: too few units, an invalid signature
    ├── UsageError         exit code 2   a wrong option, application or value
    ├── DataError          exit code 3   a file that is damaged, foreign or of another version
    └── EnvironmentFault   exit code 4   a fault of the machine, the MPI library or a folder

An error is raised where its cause is known. Only the two entry points, ``mpicoloc/cli/main.py`` and
``mpicoloc/job/wrap.py``, catch it.
"""

from __future__ import annotations

import os
import sys


class MpicolocError(Exception):
    """Base class of every error that mpicoloc raises on purpose."""

    exit_code = 1


class Refused(MpicolocError):
    """The request is refused and nothing was changed: not enough units, an invalid signature."""

    exit_code = 1


class UsageError(MpicolocError):
    """The call is wrong: an unknown option, a value out of range, a file that is not an MPI program."""

    exit_code = 2


class DataError(MpicolocError):
    """The data are damaged, foreign, of another version, or insufficient for a result."""

    exit_code = 3


class EnvironmentFault(MpicolocError):
    """The machine lacks a requirement: a folder, an MPI library, shared memory."""

    exit_code = 4


def printable(words: str) -> str:
    """Replace control characters, as a name from a file must not control the terminal or begin a new line."""
    return "".join(letter if letter.isprintable() else "?" for letter in words)


def print_to_stderr(words: str) -> None:
    """Print a line on standard error. If that fails, the exit code of a job's process must not change."""
    try:
        print(f"mpicoloc: {printable(words)}", file=sys.stderr, flush=True)
    except OSError:
        # Otherwise the interpreter would flush again at exit, fail, and replace the exit code.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (until the end)


MALFORMED = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError)
"""Errors that Python raises when a file's data do not have the expected form."""


# Libraries that a compute node does not need, and the extras of `pip install` that install them.
#
# Measuring jobs and showing their profiles takes none of these libraries. Other verbs and functions report a
# missing library in one line. `pyproject.toml` has the versions; a test compares its list with this one.


LIBRARIES: dict[str, tuple[str, ...]] = {
    "analysis": ("pandas", "scipy"),
    "report": ("matplotlib", "jinja2", "markupsafe"),
    "ledger": ("sqlalchemy",),
    "network": ("yaml",),
    "export": ("pandas", "pyarrow", "otf2"),
    "schedule": ("pandas", "scipy", "rustworkx", "sklearn", "threadpoolctl"),
    "exporter": ("prometheus_client",),
    "all": ("shtab",),
}
"""Libraries of each extra. The extra "all" also installs the libraries of all other extras."""
_EXTRA_OF_VERB = {
    "export": "export",
    "fit": "schedule",
    "predict": "schedule",
    "pair": "schedule",
    "place": "schedule",
}
"""The extra that a verb names if several extras have the missing library. Other verbs name the first one."""


def missing_extra(error: ModuleNotFoundError, what: str) -> EnvironmentFault | None:
    """The error for a library that is not installed.

    Parameters
    ----------
    error : ModuleNotFoundError
        Error of the import.
    what : str
        The verb or function that needs the library.

    Returns
    -------
    EnvironmentFault or None
        None if no extra has the library, which means that the installation of mpicoloc is damaged.
    """
    library = (error.name or "").split(".")[0]
    candidates = [extra for extra, libraries in LIBRARIES.items() if library in libraries]
    if not candidates:
        return None
    preferred = _EXTRA_OF_VERB.get(what)
    extra = preferred if preferred in candidates else candidates[0]
    more = "" if extra == "all" else "; the extra [all] serves every verb"
    return EnvironmentFault(f"{what} needs {library}, which is not installed: {remedy(extra)}{more}")


def remedy(extra: str = "", flags: str = "") -> str:
    """The command that installs mpicoloc again, with an extra, from its original source."""
    import json
    from importlib import metadata
    from urllib.parse import unquote

    try:
        origin = json.loads(metadata.distribution("mpicoloc").read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        origin = {}
    source = unquote(origin.get("url", "")).removeprefix("file://")
    is_local = os.path.exists(source)
    words = ["pip", "install", *flags.split()]
    words += ["-e"] if is_local and origin.get("dir_info", {}).get("editable") else []
    name = (source if is_local else "mpicoloc") + (f"[{extra}]" if extra else "")
    return " ".join([*words, f"'{name}'"])
