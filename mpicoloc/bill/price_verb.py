"""Price profiles again, under another rate or price function.

Prints side by side, as in Figure 12 of Breslow et al. 2013: the price by run time (state of practice), the
fair price by the measured slowdown and, if the run time alone is known, the oracle's price by the true
slowdown.

  mpicoloc price job.h5 --rate-su 2 --solo solo.h5
  mpicoloc price job.h5 --pricing site_prices:peak
"""

from __future__ import annotations

import argparse
import json
import os

from mpicoloc import config, messages
from mpicoloc.cli.arguments import bounded, size
from mpicoloc.core.progress import steps
from mpicoloc.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("files", metavar="PROFILE", nargs="+", help="profile that a job wrote")
    add_tariff(parser, "else the profile's")
    add_memory(parser)
    parser.add_argument(
        "--solo",
        metavar="FILE|SECONDS",
        action="append",
        help="profile or run time of the job alone, for the oracle's price; once, or once for each profile",
    )
    parser.add_argument("--json", action="store_true", help="print the prices as JSON")


def add_tariff(parser: argparse.ArgumentParser, default: str) -> None:
    """Flags for the rate and the price function, from the option table."""
    for key, metavar in (("price.rate_su", "R"), ("price.pricing", "NAME")):
        option = config.BY_KEY[key]
        words = f"{option.help} (default: {option.env}, {default})"
        parser.add_argument(option.flag, dest=key, metavar=metavar, help=words)


def add_memory(parser: argparse.ArgumentParser) -> None:
    """The flag for jobs that have a larger share of a node's memory than of its cores."""
    parser.add_argument(
        "--memory",
        metavar="BYTES",
        type=size(),
        help="memory allocated on each node: charge for its share of the node, if that exceeds the share of "
        "cores",
    )


@bounded
def run(args: argparse.Namespace) -> int:
    """Print the prices."""
    from mpicoloc.bill import repricing
    from mpicoloc.measure import processor
    from mpicoloc.profile import profiles

    rate_su, pricing = _tariff(args)
    solos = _per_profile("--solo", args.solo, len(args.files))
    bills, advised = [], []
    cases = list(zip(args.files, solos, strict=True))
    for file, solo in steps(cases, "reading", unit="profiles"):
        profile = profiles.read(file)
        if (note := processor.delay_note(profile)) is not None:
            messages.note(f"job {profile.job.id}: {note}")
        slowdown = None if solo is None else profile.job.wall_s / repricing.solo_s(solo, profile)
        bill = repricing.priced_again(file, profile, rate_su, pricing, slowdown, args.memory)
        bills.append((file, profile.job, bill))
        if not args.json:
            advised += [(profile.job.id, words) for words in repricing.advice_again(profile, bill)]
    if args.json:
        print(json.dumps(repricing.as_json(bills), indent=2, allow_nan=False))
    else:
        repricing.show(bills, advised)
    return 0


def _tariff(args: argparse.Namespace) -> tuple[float | None, str | None]:
    """Rate and price function from the flag, else the variable, else None to use the profile's."""
    keys = ("price.rate_su", "price.pricing")
    env = os.environ | config.flags_to_env({key: getattr(args, key) for key in keys})
    rate, name = (config.get(key, env) if env.get(config.BY_KEY[key].env) else None for key in keys)
    return None if rate is None else float(rate), None if name is None else str(name)


def _per_profile(flag: str, given: list[str] | None, n: int) -> list[str | None]:
    if not given:
        return [None] * n
    if len(given) not in (1, n):
        raise UsageError(f"{flag} must be given once, or once for each of the {n} profiles, got {len(given)}")
    return [*given] * (n if len(given) == 1 else 1)
