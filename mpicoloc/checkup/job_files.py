"""Files in shared memory: the board of this node's jobs, and what dead jobs left."""

from __future__ import annotations

import contextlib
import importlib
import os

from mpicoloc import config
from mpicoloc.checkup.finding import Finding
from mpicoloc.errors import MpicolocError


def board() -> Finding:
    """Jobs on this node now."""
    path = ""
    try:
        contract = importlib.import_module("mpicoloc.pmpi.contract")
        printable = importlib.import_module("mpicoloc.core.tables").printable
        path = contract.board_path()
        record = contract.read_file(path)
    except FileNotFoundError:
        return Finding("board", "ok", "no job runs under mpicoloc on this node now")
    except OSError as error:
        return Finding("board", "fail", f"{path}: {error.strerror}", _remove_board(path))
    except (ImportError, MpicolocError) as error:
        return Finding("board", "fail", str(error), _remove_board(path))
    taken = [slot for slot in record["slots"] if slot["owner"]]
    if not os.access(path, os.W_OK):
        return Finding("board", "fail", f"{path} cannot be written", f"its owner or root: chmod 666 {path}")
    names = ", ".join(printable(contract.text(slot["job_id"])) for slot in taken)
    return Finding("board", "ok", f"{len(taken)} jobs on this node{': ' + names if names else ''}")


def foreign_boards() -> list[Finding]:
    """Boards of other versions of mpicoloc, which may have been left behind or planted."""
    try:
        leftovers = importlib.import_module("mpicoloc.coordinator.leftovers")
        paths = leftovers.foreign_boards(str(config.get("shm_dir")))
    except (ImportError, OSError, MpicolocError):
        return []  # told of by other findings
    found = []
    for path in paths:
        with contextlib.suppress(OSError):  # it has gone meanwhile
            found.append(f"{path} of user {os.lstat(path).st_uid}")
    if not found:
        return []
    text = "while jobs run on them, new jobs of this version measure no slowdown here"
    remedy = "one version on a node; where none runs, their users: mpicoloc check --clean, or root: rm"
    return [Finding("boards of other versions", "note", f"{', '.join(found)}: {text}", remedy)]


def _remove_board(path: str) -> str:
    try:
        return f"user {os.lstat(path).st_uid} or root, when no job runs: rm {path}"
    except OSError:
        return "install mpicoloc again, all parts at once"


def left_behind(remove: bool = False) -> Finding:
    """Files of this user's jobs that were killed together with their keeper.

    Parameters
    ----------
    remove : bool
        Delete them.
    """
    name = "left behind"
    try:
        leftovers = importlib.import_module("mpicoloc.coordinator.leftovers")
        folder = str(config.get("shm_dir"))
        found = [*leftovers.find(folder), *leftovers.boards(folder)]
        n_files = sum(one.remove() if remove else len(one.paths) for one in found)
    except (ImportError, OSError, MpicolocError) as error:
        return Finding(name, "note", f"cannot look for files of dead jobs: {error}")
    if not found:
        return Finding(name, "ok", "no files of dead jobs")
    keys = ", ".join(one.key for one in found[:8]) + (" ..." if len(found) > 8 else "")
    if remove:
        return Finding(name, "ok", f"removed {n_files} files of dead jobs: {keys}")
    return Finding(name, "note", f"{n_files} files of dead jobs: {keys}", "mpicoloc check --clean")
