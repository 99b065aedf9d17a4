"""Libraries that a compute node does not need, and the extras of `pip install` that bring them.

The core measures jobs and shows their profiles. A verb or a function that needs more says so in one line.
`pyproject.toml` has the versions; a test compares the two lists. Standard library only.
"""

from __future__ import annotations

from mpicoloc.errors import EnvironmentFault

LIBRARIES: dict[str, tuple[str, ...]] = {
    "analysis": ("pandas", "scipy"),
    "report": ("matplotlib", "jinja2", "markupsafe"),
    "ledger": ("sqlalchemy",),
    "network": ("yaml",),
    "export": ("pandas", "pyarrow", "otf2"),
    "schedule": ("pandas", "scipy", "rustworkx", "sklearn", "optuna", "threadpoolctl"),
    "all": ("shtab",),
}
"""What can be imported with each extra; "all" has those of the others as well."""
_FIRST_OF_VERB = {"export": "export", "fit": "schedule", "predict": "schedule", "pair": "schedule"}
"""The extra to name where several have the library that a verb lacks; of the other verbs: analysis."""


def missing(error: ModuleNotFoundError, what: str) -> EnvironmentFault | None:
    """The message for a library that is not installed.

    Parameters
    ----------
    error : ModuleNotFoundError
        Of the import.
    what : str
        The verb or function that needs the library.

    Returns
    -------
    EnvironmentFault or None
        None: the library is in no extra, so mpicoloc itself is damaged.
    """
    library = (error.name or "").split(".")[0]
    found = [extra for extra, libraries in LIBRARIES.items() if library in libraries]
    if not found:
        return None
    first = _FIRST_OF_VERB.get(what)
    extra = first if first in found else found[0]
    more = "" if extra == "all" else ", or 'mpicoloc[all]' for every verb"
    return EnvironmentFault(
        f"{what} needs {library}, which is not installed: pip install 'mpicoloc[{extra}]'{more}"
    )
