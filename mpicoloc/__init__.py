"""mpicoloc: how much do MPI jobs that share a node slow each other down, and what is the fair price?"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take this name as True; importing it from typing costs every rank 5 ms
if TYPE_CHECKING:
    import os

    from mpicoloc.profile.frames import Frames
    from mpicoloc.profile.history import Jobs

__version__ = "0.2.0"


def open(path: str | os.PathLike[str]) -> Frames:
    """Read a profile: its tables as pandas frames, its other data as ``.profile``."""
    # Imported here: every rank imports this package through `wrap`, and pandas takes long to import.
    try:
        from mpicoloc.profile.frames import open_profile
    except ModuleNotFoundError as error:
        raise _missing(error, "mpicoloc.open") from error
    return open_profile(path)


def history(folder: str | os.PathLike[str]) -> Jobs:
    """The facts of all profiles below a folder, one row each; an index saves reading a file twice."""
    try:
        from mpicoloc.profile import history
    except ModuleNotFoundError as error:
        raise _missing(error, "mpicoloc.history") from error
    return history.history(folder)


def _missing(error: ModuleNotFoundError, what: str) -> Exception:
    from mpicoloc import errors

    return errors.missing_extra(error, what) or error
