"""Libraries that a compute node does not need, and the extras of `pip install` that bring them.

The core measures jobs and shows their profiles. A verb or function whose library is missing says so in one
line. `pyproject.toml` has the versions; a test compares the two lists. Standard library only.
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
    more = "" if extra == "all" else ", or 'mpicoloc[all]' for every verb"
    return EnvironmentFault(
        f"{what} needs {library}, which is not installed: pip install 'mpicoloc[{extra}]'{more}"
    )
