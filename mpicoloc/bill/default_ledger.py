"""The ledger that a call means, and the stamp of its transactions."""

from __future__ import annotations

import getpass
import os
import socket
import time

from mpicoloc.bill.ledger import Ledger, Stamp
from mpicoloc.errors import EnvironmentFault


def open_ledger(where: object, *, create: bool) -> Ledger:
    """The ledger of a file or URL; None: the user's own, in a folder that is made with `create`."""
    if where is None:
        where = default_file()
        if create:
            _make_folder(os.path.dirname(where))
    return Ledger(str(where), create=create)


def default_file() -> str:
    """The ledger of a user who names none."""
    base = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return os.path.join(base, "mpicoloc", "ledger.sqlite")


def _make_folder(folder: str) -> None:
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        raise EnvironmentFault(
            f"the ledger's folder {folder} cannot be made ({error.strerror}): name a file with --ledger"
        ) from None


def stamp_now() -> Stamp:
    """Time, user and host of this call."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        user = str(os.getuid())
    # Either name may have any bytes.
    by = f"{user}@{socket.gethostname()}".encode("utf-8", "replace").decode()
    return Stamp(time.time(), by[:190])
