"""The jobs that are on this node now: from the board, and, of this user's, from their own files.

Nothing is written, and no job is asked: a job does not notice who looks.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from mpicoloc.core.live import Counts, LiveJob
from mpicoloc.errors import EnvironmentFault, MpicolocError
from mpicoloc.pmpi import contract
from mpicoloc.profile.assembly.collect import collect
from mpicoloc.profile.assembly.merge import merge

SILENT_S = 10.0
"""A job whose agent gave no sign of life for so long has ended without saying so."""


def jobs() -> list[LiveJob]:
    """The jobs on this node, oldest first, by the files in the folder of option `shm_dir`.

    Raises
    ------
    EnvironmentFault
        If the board cannot be read.
    """
    board = contract.board_path()
    keys = dict(_own(os.path.dirname(board)))
    found = [_job(slot, keys) for slot in _slots(board)]
    return sorted(found, key=lambda job: -job.age_s)


def _slots(path: str) -> Iterator[np.void]:
    try:
        board = contract.read_file(path)
    except FileNotFoundError:
        return
    except (OSError, MpicolocError) as error:
        raise EnvironmentFault(f"cannot read the board of this node: {error}") from error
    for slot in board["slots"]:
        if slot["owner"] and time.monotonic() - int(slot["heartbeat"]) * 1e-9 < SILENT_S:
            yield slot


def _own(folder: str) -> Iterator[tuple[tuple[int, str], str]]:
    """Key of each of this user's jobs, by its agent's process and its name, which several may have."""
    for name in os.listdir(folder):
        match = re.fullmatch(r"mpicoloc\.(.+)\.node", name)
        # It may end while it is looked at, or be another user's.
        with contextlib.suppress(FileNotFoundError, PermissionError, MpicolocError):
            if match and os.lstat(os.path.join(folder, name)).st_uid == os.geteuid():
                heads = contract.segment_heads(match[1])
                if heads:
                    agent_pid = contract.read_file(os.path.join(folder, name))["agent_pid"]
                    yield (int(agent_pid), heads[0].job_id), match[1]


def _job(slot: np.void, keys: Mapping[tuple[int, str], str]) -> LiveJob:
    name = contract.text(slot["job_id"])
    age_s = time.monotonic() - int(slot["t_joined"]) * 1e-9
    bits = np.unpackbits(slot["cpu_mask"].view(np.uint8), bitorder="little")
    cores = tuple(np.flatnonzero(bits).tolist())
    owner = int(slot["owner"])
    job = LiveJob(name, int(slot["uid"]), int(slot["n_ranks"]), cores, age_s, owner)
    own = (owner >> 32, name)
    # It may end while it is looked at.
    with contextlib.suppress(MpicolocError, OSError):
        # Another user's job may have the same name.
        return _with_own(job, keys[own]) if own in keys and job.uid == os.geteuid() else job
    return job


def _with_own(job: LiveJob, key: str) -> LiveJob:
    """What its profile would say if the job ended now."""
    profile = merge([collect(key, has_events=False)], partial=True)
    ranks, nodes = profile.tables["ranks"], profile.tables["nodes"]
    ranks = ranks[ranks["state"] == b"running"]
    counts = Counts(
        time.monotonic(),
        len(ranks),
        n_calls=int(ranks["n_calls"].sum()),
        mpi_s=float(ranks["mpi_ns"].sum()) * 1e-9,
        sent_bytes=int(ranks["sent_bytes"].sum()),
    )
    return replace(
        job,
        command=profile.job.command,
        counts=counts,
        slowdown=profile.interference.slowdown,
        reason=profile.interference.reason,
        n_shutters=profile.interference.n_taken,
        paused_frac=float(nodes["paused_s"].sum() / max(nodes["watched_s"].sum(), 1e-9)),
    )
