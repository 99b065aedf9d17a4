"""Prices of a profile under another rate, price function or true slowdown."""

from __future__ import annotations

from mpicoloc import config, pricings
from mpicoloc.core.profile import Profile
from mpicoloc.core.tables import printable
from mpicoloc.errors import DataError, MpicolocError, UsageError
from mpicoloc.pricing.price import Bill, Tariff, bill, tariff
from mpicoloc.profile import profiles


def solo_s(text: str, profile: Profile) -> float:
    """Run time of the job alone: `text` is a number of seconds, or the profile of such a run.

    Raises
    ------
    UsageError
        If it is a number and not above 0.
    DataError
        If the run was none of this job alone.
    """
    try:
        float(text)
    except ValueError:
        solo = profiles.read(text)
    else:
        return config.parse_positive("--solo", text)
    if solo.interference.shared_s:
        raise DataError(
            f"{text} is no run alone: it shared its nodes for {solo.interference.shared_s:.4g} s; "
            "run the job alone, or give seconds"
        )
    size, other = ((p.job.n_ranks, p.job.n_cores) for p in (profile, solo))
    if size != other:
        raise DataError(
            f"{text} is a run of {other[0]} ranks on {other[1]} cores, not of {size[0]} on {size[1]}: "
            "not the same job"
        )
    if solo.partial or not solo.job.wall_s > 0:
        raise DataError(f"{text} is the profile of a run that did not end; give one that did, or seconds")
    return solo.job.wall_s


def priced_again(
    file: str, profile: Profile, rate_su: float | None, pricing: str | None, true_slowdown: float | None
) -> Bill:
    """The prices of a profile.

    Parameters
    ----------
    file : str
        Its name, for messages.
    profile : Profile
    rate_su : float or None
        Rate, SU per core and hour; None: the profile's.
    pricing : str or None
        Name of the price function; None: the profile's.
    true_slowdown : float or None
        For the oracle's price.
    """
    try:
        return bill(
            profile.interference.slowdown,
            n_cores=profile.job.n_cores,
            wall_s=profile.job.wall_s,
            tariff=_tariff(profile, rate_su, pricing),
            true_slowdown=true_slowdown,
        )
    except MpicolocError as error:
        raise type(error)(f"{file}: {error}") from error


def _tariff(profile: Profile, rate_su: float | None, name: str | None) -> Tariff:
    priced = profile.price
    if rate_su is None:
        rate_su = float(config.get("price.rate_su") or 0.0) if priced is None else priced.rate_su
    if name is None and priced is not None and pricings.is_code_location(priced.pricing):
        # A profile may come from anybody: its word must not make this process run code.
        raise UsageError(
            f"priced by {priced.pricing!r}, which is code: "
            f"to run it, give --pricing {printable(priced.pricing)}"
        )
    if name is None:
        name = str(config.get("price.pricing")) if priced is None else priced.pricing
    return tariff(rate_su, name)
