"""Keep accounts of service units (SU), and charge profiles to them.

  mpicoloc ledger open chemistry --grant 1000
  mpicoloc ledger charge chemistry mpicoloc-1234.h5 --rate-su 2
  mpicoloc ledger statement chemistry
  mpicoloc ledger collect /var/spool/mpicoloc --key-file site.key

A profile is charged only once, however often it is submitted. Rate and price function come from the call's
flags or variables, never from the profile. Without --ledger or MPICOLOC_LEDGER, the ledger is an SQLite file
in the user's home.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from mpicoloc import config
from mpicoloc.bill.price_verb import add_memory, add_tariff
from mpicoloc.bill.verify import add_key_file, key_of
from mpicoloc.cli import arguments
from mpicoloc.core.units import usu_of_text
from mpicoloc.errors import UsageError

_EXAMPLES = {
    "open": "chemistry --grant 1000",
    "grant": "chemistry 500 --reference 2026-Q3 --note 'third quarter'",
    "charge": "chemistry mpicoloc-1234.h5 --rate-su 2",
    "collect": "/var/spool/mpicoloc --key-file site.key",
    "refund": "17 --note 'node failed'",
    "statement": "chemistry",
    "audit": "--json",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb and its actions."""
    actions = parser.add_subparsers(
        dest="action", metavar="ACTION", required=True, help="each action has its own --help"
    )
    _add_open(_action(actions, "open", "open_account", "open an account; create the ledger if there is none"))
    grant = _action(actions, "grant", "grant", "add units to an account")
    grant.add_argument("account", metavar="NAME", help="the account")
    grant.add_argument("su", metavar="SU", type=_amount("SU"), help="units, with up to 6 decimal places")
    _add_words(grant)
    _add_charge(_action(actions, "charge", "charge", "charge profiles to an account, each once"))
    _add_collect(
        _action(
            actions, "collect", "collect", "charge the profiles that Slurm's plugin has signed, each once"
        )
    )
    refund = _action(actions, "refund", "refund", "give back a charge or a part of it")
    refund.add_argument(
        "transaction",
        metavar="TRANSACTION",
        type=arguments.whole(),
        help="number of the charge, as shown by statement",
    )
    refund.add_argument(
        "--su",
        metavar="SU",
        type=_amount("--su"),
        help="units to refund (default: what is left of the charge)",
    )
    refund.add_argument(
        "--release",
        action="store_true",
        help="refund what is left, and allow the same profile to be charged again",
    )
    _add_words(refund)
    statement = _action(actions, "statement", "statement", "list an account's grants, charges and refunds")
    statement.add_argument("account", metavar="NAME", help="the account")
    _action(actions, "list", "list_accounts", "show all accounts")
    _action(actions, "audit", "check_books", "check that the books balance; exit code 1 if they do not")


def _action(actions: Any, name: str, function: str, words: str) -> argparse.ArgumentParser:
    parser = arguments.action(actions, f"ledger {name}", words, _EXAMPLES.get(name, ""), function)
    option = config.BY_KEY["ledger"]
    parser.add_argument(option.flag, metavar="FILE|URL", help=f"{option.help} ({option.env})")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    return parser


def _amount(flag: str) -> Callable[[str], int]:
    """An argument type that converts an amount in SU to micro-SU."""
    return lambda text: usu_of_text(text, flag)


def _add_open(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("account", metavar="NAME", help="the account")
    parser.add_argument(
        "--grant", metavar="SU", type=_amount("--grant"), default="0", help="initial units (default 0)"
    )
    parser.add_argument(
        "--overdraft",
        metavar="SU",
        type=_amount("--overdraft"),
        default="0",
        help="how far below 0 the balance may fall (default 0)",
    )


def _add_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--reference",
        metavar="TEXT",
        default="",
        help="unique reference: a repeated call with the same text has no effect",
    )
    parser.add_argument("--note", metavar="TEXT", default="", help="note for the statement")


def _add_charge(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("account", metavar="NAME", help="the account")
    parser.add_argument("files", metavar="PROFILE", nargs="+", help="profiles that jobs wrote")
    add_tariff(parser, "never that of the profile")
    parser.add_argument(
        "--cores",
        metavar="N",
        type=arguments.whole(most=2**31 - 1),
        help="cores to charge for (default: those of the profile)",
    )
    add_memory(parser)
    parser.add_argument(
        "--wall-s",
        metavar="S",
        type=arguments.seconds,
        help="run time to charge for, s (default: the profile's)",
    )
    parser.add_argument("--job-id", metavar="ID", help="refuse profiles of other jobs")
    parser.add_argument(
        "--key-file", metavar="KEYFILE", help="refuse profiles that are not signed with the key in this file"
    )


def _add_collect(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spool", metavar="SPOOL", help="folder of signed profiles and Slurm's records")
    add_key_file(parser)
    add_tariff(parser, "never that of the profile")
    parser.add_argument(
        "--by",
        choices=("user", "account"),
        default="user",
        help="ledger account to charge: named as the job's user (default), or as the job's account in Slurm",
    )
    parser.add_argument(
        "--grace-s",
        metavar="S",
        type=arguments.seconds,
        default="3600",
        help="charge a step without a profile once its record is this old (default 3600; 0: at once)",
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be charged; charge nothing")


def run(args: argparse.Namespace) -> int:
    """Run the action."""
    for name in ("account", "reference", "note", "job_id"):
        text = getattr(args, name, None) or ""
        if not text.isascii() and text.encode("utf-8", "replace").decode() != text:
            raise UsageError(f"{name} is not UTF-8 text, got {text!r}: write it in UTF-8")
    if args.action == "collect":
        from mpicoloc.slurm import collect

        why = "profiles and records in a spool are charged only if the site has signed them"
        return collect.run(args, key_of(args, why))
    from mpicoloc.bill import ledger_actions

    return int(getattr(ledger_actions, args.act)(args))
