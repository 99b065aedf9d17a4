"""Cost of shutters for jobs that take turns: Breslow et al. 2013, section 8.1."""

from mpicoloc.errors import UsageError


def paused_frac(duration_s, period_s, n_jobs):
    """Part of its time that each of n jobs stands still for the others: Z of Eq. 9.

    `period_s` is from the begin of one shutter to that of the next: the paper's P + 3 S.
    """
    if n_jobs < 1 or not 0 <= duration_s <= period_s or period_s <= 0:
        raise UsageError(
            f"{n_jobs} jobs cannot have shutters of {duration_s:g} s every {period_s:g} s; "
            "give one job at least, and a period above 0 and not below the duration"
        )
    return (n_jobs - 1) * duration_s / (n_jobs * period_s)


def stretch(duration_s, period_s, n_jobs):
    """Run time of a job with shutters over that without, if it only loses the pauses: 1 / (1 - Z), Eq. 10.

    Co-runners that slow each other lose less, because each has its own shutters to itself.
    """
    return 1.0 / (1.0 - paused_frac(duration_s, period_s, n_jobs))
