"""Price profiles again, under another rate or price function.

Beside each other, as in Figure 12 of Breslow et al. 2013: the price by run time (state of practice), the
fair price by the measured slowdown and, where the run time alone is known, the oracle's by the true one.

  mpicoloc price job.h5 --rate-su 2 --solo solo.h5
  mpicoloc price job.h5 --pricing site_prices:peak
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from mpicoloc import config, pricings
from mpicoloc.cli.memory import bounded
from mpicoloc.core.progress import steps
from mpicoloc.errors import DataError, MpicolocError, UsageError

if TYPE_CHECKING:
    from mpicoloc.core.profile import Profile
    from mpicoloc.pricing.price import Bill, Tariff


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("files", metavar="PROFILE", nargs="+", help="profile that a job wrote")
    add_tariff(parser, "default: the profile's")
    parser.add_argument(
        "--true-slowdown",
        metavar="X",
        action="append",
        help="the true T_co/T_solo, for the oracle's price; once, or once for each profile",
    )
    parser.add_argument(
        "--solo",
        metavar="FILE|SECONDS",
        action="append",
        help="the job's profile or run time alone, for the oracle's price; once, or once for each profile",
    )
    parser.add_argument("--json", action="store_true", help="print the prices as JSON")


def add_tariff(parser: argparse.ArgumentParser, default: str) -> None:
    """Flags for the rate and the price function, from the option table."""
    for key, metavar in (("price.rate_su", "R"), ("price.pricing", "NAME")):
        option = config.BY_KEY[key]
        parser.add_argument(option.flag, dest=key, metavar=metavar, help=f"{option.help} ({default})")


@bounded
def run(args: argparse.Namespace) -> int:
    """Print the prices."""
    from mpicoloc.profile import profiles
    from mpicoloc.report.terminal import bill as report

    config.flags_to_env({key: getattr(args, key) for key in ("price.rate_su", "price.pricing")})
    if args.true_slowdown and args.solo:
        raise UsageError("--true-slowdown and --solo both set the true slowdown: give one of them")
    truths = _per_profile("--true-slowdown", args.true_slowdown, len(args.files))
    solos = _per_profile("--solo", args.solo, len(args.files))
    bills = []
    cases = list(zip(args.files, truths, solos, strict=True))
    for file, truth, solo in steps(cases, "reading", unit="profiles"):
        profile = profiles.read(file)
        slowdown = None if truth is None else config.parse_positive("--true-slowdown", truth)
        if solo is not None:
            slowdown = profile.job.wall_s / solo_s(solo, profile)
        bills.append((file, profile.job, _bill(file, profile, args, slowdown)))
    if args.json:
        print(json.dumps(report.as_json(bills), indent=2, allow_nan=False))
    else:
        report.show(bills)
    sys.stdout.flush()
    return 0


def _per_profile(flag: str, given: list[str] | None, n: int) -> list[str | None]:
    if not given:
        return [None] * n
    if len(given) not in (1, n):
        raise UsageError(f"{flag} must be given once, or once for each of the {n} profiles, got {len(given)}")
    return [*given] * (n if len(given) == 1 else 1)


def solo_s(text: str, profile: Profile) -> float:
    """Run time of the job alone: `text` is a number of seconds, or the profile of such a run.

    Raises
    ------
    UsageError
        If it is a number and not above 0.
    DataError
        If the run was none of this job alone.
    """
    from mpicoloc.profile import profiles

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


def _bill(file: str, profile: Profile, args: argparse.Namespace, true_slowdown: float | None) -> Bill:
    from mpicoloc.pricing.price import bill

    try:
        return bill(
            profile.interference.slowdown,
            n_cores=profile.job.n_cores,
            wall_s=profile.job.wall_s,
            tariff=_tariff(profile, args),
            true_slowdown=true_slowdown,
        )
    except MpicolocError as error:
        raise type(error)(f"{file}: {error}") from error


def _tariff(profile: Profile, args: argparse.Namespace) -> Tariff:
    """The tariff asked for, else the profile's."""
    from mpicoloc.pricing.price import tariff

    priced = profile.price
    rate, name = getattr(args, "price.rate_su"), getattr(args, "price.pricing")
    rate_su = config.get("price.rate_su") if priced is None else priced.rate_su
    if rate is not None:
        rate_su = float(rate)
    if name is None and priced is not None and pricings.is_code_location(priced.pricing):
        from mpicoloc.core.tables import printable

        # A profile may come from anybody: its word must not make this process run code.
        raise UsageError(
            f"priced by {priced.pricing!r}, which is code: "
            f"to run it, give --pricing {printable(priced.pricing)}"
        )
    if name is None:
        name = str(config.get("price.pricing")) if priced is None else priced.pricing
    return tariff(float(rate_su or 0.0), name)
