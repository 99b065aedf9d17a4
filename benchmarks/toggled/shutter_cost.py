"""What shutters cost the jobs that take turns: Breslow et al. 2013, section 7.2."""

from __future__ import annotations

from mpicoloc.errors import UsageError


def paused_frac(duration_s: float, period_s: float, n_jobs: int) -> float:
    """Part of its time that each job stands still for the others.

    Parameters
    ----------
    duration_s : float
        Length of a shutter, s.
    period_s : float
        From the begin of one shutter to that of the next, s: the paper's P + 3 S.
    n_jobs : int
        Jobs that take turns.

    Returns
    -------
    float
        Z of Eq. 9, from 0 to 1.

    Raises
    ------
    UsageError
        If shutters overlap, or there is no job.
    """
    if n_jobs < 1 or not 0 <= duration_s <= period_s or period_s <= 0:
        raise UsageError(
            f"{n_jobs} jobs cannot have shutters of {duration_s:g} s every {period_s:g} s; "
            "give one job at least, and a period above 0 and not below the duration"
        )
    return (n_jobs - 1) * duration_s / (n_jobs * period_s)


def stretch(duration_s: float, period_s: float, n_jobs: int) -> float:
    """Run time of a job with shutters over that without, if the job only loses the pauses.

    Parameters are those of `paused_frac`. Returns 1 / (1 - Z), Eq. 10 over T_i. Co-runners that slow each
    other lose less, because each has its own shutters to itself.
    """
    return 1.0 / (1.0 - paused_frac(duration_s, period_s, n_jobs))
