"""What `mpicoloc slurm close` does when a step or a job ends: record, sign, price, and say what was wrong."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from mpicoloc.core import messages
from mpicoloc.errors import MpicolocError
from mpicoloc.profile.signature import KeyFile
from mpicoloc.slurm import slurm_close, slurm_price, slurm_record, slurm_settle, step_note
from mpicoloc.slurm.slurm_close import Start


def close(
    start: Start, key: KeyFile, out: str, spool: str, *, shm_dir: str, step: str | None, ended_s: float
) -> int:
    """Sign and settle what a job left; one bad profile does not stop the signing of the others.

    Parameters
    ----------
    start : Start
        The job.
    key : KeyFile
        The site's.
    out : str
        Pattern of the job's profiles.
    spool : str
        Folder for the signed ones.
    shm_dir : str
        Folder of the job's files in memory.
    step : str, optional
        The one that ends; None: what is left of the job.
    ended_s : float
        When the step ended, s since 1970.

    Returns
    -------
    int
        The highest exit code of what went wrong, 0 if nothing did.
    """
    code = 0
    if step is not None:
        try:
            slurm_record.record_ended_step((start, step), key, spool, ended_s)
        except MpicolocError as error:
            messages.trouble(str(error))
            code = error.exit_code
        folder = os.path.dirname(slurm_close.profile_path(out, start, step)) or "."
        if not os.path.isdir(folder):
            messages.trouble(f"no folder {folder}, so step {start.job}.{step} has no profile: make it")
    elif not start.is_running:
        code = print_results(slurm_settle.settle_job(spool, start, key, time.time()))
        if code == 0:
            step_note.unmark(spool, start.job)
    slurm_close.sweep(spool, time.time())
    if not start.is_running and not slurm_close.wait_for_writers(start, shm_dir):
        messages.trouble(f"job {start.job}: its profile is still being written, so it may not be signed")
    code = max(code, _sign(start, key, out, spool))
    _price(spool, start)
    return code


def _sign(start: Start, key: KeyFile, out: str, spool: str) -> int:
    """Sign what the steps of a job left; returns the highest exit code."""
    code = 0
    found, strange = slurm_record.split_by_known_steps(slurm_close.find_profiles(out, start), spool, start)
    if strange:
        messages.trouble(
            f"{strange[0][0]} is of no step of job {start.job} that was measured, so it is not signed"
            + (f", nor are {len(strange) - 1} more" if strange[1:] else "")
        )
    for profile in found:
        try:
            to = slurm_close.sign(profile, start, key, spool, time.time())
        except MpicolocError as error:
            messages.trouble(str(error) if profile[0] in str(error) else f"{profile[0]}: {error}")
            code = max(code, error.exit_code)
        else:
            print(to or f"{profile[0]} was signed before")
    return code


def _price(spool: str, start: Start) -> None:
    """Into AdminComment, while Slurm takes it."""
    if start.is_running:
        told = slurm_price.price_so_far(spool, start)
        is_told = told is None or slurm_price.write_admin_comment(start, told)
    else:
        slurm_price.remove_cache(spool, start)
        is_told = not slurm_close.signed_profiles(spool, start)
    if not is_told:
        messages.note(f"job {start.job} has ended: Slurm takes no price into its AdminComment any more")


def print_results(results: Iterable[str | MpicolocError]) -> int:
    """Print what was made, report what was not; returns the highest exit code."""
    code = 0
    for result in results:
        if isinstance(result, MpicolocError):
            messages.trouble(str(result))
            code = max(code, result.exit_code)
        else:
            print(result)
    return code
