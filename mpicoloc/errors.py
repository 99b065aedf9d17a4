"""Errors for users: one line that says what is wrong, the value, and what to do.

    MpicolocError
    ├── Refused            exit code 1   the answer is no: too few units, a signature that does not hold
    ├── UsageError         exit code 2   a wrong option, application or value
    ├── DataError          exit code 3   a file that is damaged, foreign or of another version
    └── EnvironmentFault   exit code 4   the machine, the MPI library or a folder refuses

They are raised where the cause is known, and caught only in the two entries, ``mpicoloc/cli/main.py`` and
``mpicoloc/job/wrap.py``.
"""

from __future__ import annotations

import os
import sys


class MpicolocError(Exception):
    """Base class of every error that mpicoloc raises on purpose."""

    exit_code = 1


class Refused(MpicolocError):
    """The answer is no, and nothing was changed: not enough units, a signature that does not hold."""

    exit_code = 1


class UsageError(MpicolocError):
    """The call is wrong: an unknown option, a value out of range, a file that is no MPI program."""

    exit_code = 2


class DataError(MpicolocError):
    """Data is damaged, foreign, of another version, or too little for an answer."""

    exit_code = 3


class EnvironmentFault(MpicolocError):
    """The machine lacks what is needed: a folder, an MPI library, shared memory."""

    exit_code = 4


def printable(words: str) -> str:
    """A text without control characters: names in files must not control the terminal, nor begin a line."""
    return "".join(letter if letter.isprintable() else "?" for letter in words)


def print_to_stderr(words: str) -> None:
    """Print one line on standard error; a failure must not change the exit code of a job's process."""
    try:
        print(f"mpicoloc: {printable(words)}", file=sys.stderr, flush=True)
    except OSError:
        # Otherwise the interpreter would write again at its end, and exit with its own code.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (until the end)


MALFORMED = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError)
"""Errors that Python raises while it reads foreign data that are not as they were written."""


# Libraries that a compute node does not need, and the extras of `pip install` that bring them.
#
# The core measures jobs and shows their profiles. A verb or function whose library is missing says so in one
# line. `pyproject.toml` has the versions; a test compares the two lists. Standard library only.


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
"""Libraries of each extra; "all" installs those of the other extras, too."""
_EXTRA_OF_VERB = {
    "export": "export",
    "fit": "schedule",
    "predict": "schedule",
    "pair": "schedule",
    "place": "schedule",
}
"""The extra to name if several have the library that a verb lacks; for other verbs: the first that has it."""


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
        None if the library is in no extra: then the installation of mpicoloc is damaged.
    """
    library = (error.name or "").split(".")[0]
    candidates = [extra for extra, libraries in LIBRARIES.items() if library in libraries]
    if not candidates:
        return None
    preferred = _EXTRA_OF_VERB.get(what)
    extra = preferred if preferred in candidates else candidates[0]
    more = "" if extra == "all" else "; [all] is for every verb"
    return EnvironmentFault(f"{what} needs {library}, which is not installed: {remedy(extra)}{more}")


def remedy(extra: str = "", flags: str = "") -> str:
    """The command that installs mpicoloc, with an extra, from where it was installed."""
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
