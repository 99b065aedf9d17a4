"""What jobs on the same links cost each other, as `sharing.mutual_slowdown` estimates it, from few numbers.

A job keeps all links of one kind, such as those above a switch, busy for the same part of its time. So a row
for each job above each switch serves where `mutual_slowdown` needs the load of each link.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoloc.network.load import sharing

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class LinkRows:
    """Who uses which links: rows of one job above one switch or subtree, those of a subtree together.

    Parameters
    ----------
    job : ndarray of int, shape (n,)
        Index of the job.
    n_users : ndarray of int, shape (n_links,)
        Rows of each subtree.
    busy : ndarray, shape (n,)
        Part of its time alone for which the job keeps these links busy, in (0, 1].
    n_hosts : ndarray, shape (2, n)
        Hosts of the job inside and outside the subtree: those that send up and down, at least 1.
    """

    job: Ints
    n_users: Ints
    busy: Floats
    n_hosts: Floats


def delays(rows: LinkRows, alone: Floats, pace: Floats, tolerance: float = sharing.TOLERANCE) -> Floats:
    """Time that other jobs on its links cost each job, s for each second of its work.

    Parameters
    ----------
    rows : LinkRows
        Of jobs 0 to n_jobs - 1, each of which has at least one.
    alone : ndarray, shape (n_jobs,)
        Part of its time alone for which a job keeps its most loaded link busy, shared or not.
    pace : ndarray, shape (n_jobs,)
        Time that it takes for each second of its work if it has its links for itself, at least 1.
    tolerance : float
        Change of the delays with which the search for those that agree ends.

    Returns
    -------
    ndarray, shape (n_jobs,)
        Not below 0.

    Notes
    -----
    `sharing.mutual_slowdown` is this plus 1 for jobs with a pace of 1. A job that is slower for other reasons
    sends for a smaller part of its time.
    """
    first, second, starts = _pairs(rows.n_users)
    theirs = rows.n_hosts.take(second, axis=1)
    share = theirs / (theirs + rows.n_hosts.take(first, axis=1))
    share[:, first == second] = 0.0
    by_job = rows.job.argsort(kind="stable")
    first_of_job = rows.job[by_job].searchsorted(np.arange(len(alone)))
    found, sending = np.zeros(len(alone)), np.array([rows.busy / pace[rows.job]] * 2)
    for _ in range(sharing.MAX_ITERATIONS):
        crowding = sharing.crowding(sending.take(second, axis=1) * share)
        longer = rows.busy * (1.0 + np.add.reduceat(crowding, starts, axis=1))
        before = found
        found = np.maximum(np.maximum.reduceat(np.maximum(*longer)[by_job], first_of_job) - alone, 0.0)
        if np.abs(found - before).max() < tolerance:
            break
        sending = longer / (pace + found)[rows.job]
    return found


def _pairs(n_users: Ints) -> tuple[Ints, Ints, Ints]:
    """All pairs of rows of one subtree, each row with itself, too, and where those of each row begin."""
    n_of_row = n_users.repeat(n_users)
    starts = n_of_row.cumsum() - n_of_row
    first = np.arange(len(n_of_row)).repeat(n_of_row)
    first_of_link = (n_users.cumsum() - n_users).repeat(n_users)
    second = np.arange(len(first)) - (starts - first_of_link).repeat(n_of_row)
    return first, second, starts
