"""Keep accounts of service units (SU), and charge profiles to them.

  mpicoloc ledger open chemistry --grant 1000
  mpicoloc ledger charge chemistry mpicoloc-1234.h5 --rate-su 2
  mpicoloc ledger statement chemistry
  mpicoloc ledger collect /var/spool/mpicoloc --key-file site.key

A profile is charged once, however often it is posted. Rate and price function are the ledger keeper's, never
those in the profile. Without --ledger or MPICOLOC_LEDGER the books are an SQLite file of the user's own.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from mpicoloc import config
from mpicoloc.bill.price_verb import add_tariff
from mpicoloc.bill.verify import add_key_file
from mpicoloc.cli import helping
from mpicoloc.core import service_units
from mpicoloc.errors import UsageError

if TYPE_CHECKING:
    from mpicoloc.bill.ledger import Ledger, Stamp

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
    """Arguments of the verb and of what may follow it."""
    actions = parser.add_subparsers(
        dest="action", metavar="ACTION", required=True, help="each has a --help of its own"
    )
    _add_open(_action(actions, "open", _open, "open an account, and the ledger if there is none"))
    grant = _action(actions, "grant", _grant, "add units to an account")
    grant.add_argument("account", metavar="NAME", help="the account")
    grant.add_argument("su", metavar="SU", help="units, with up to 6 decimal places")
    _add_words(grant)
    _add_charge(_action(actions, "charge", _charge, "charge profiles to an account, each once"))
    _add_collect(_action(actions, "collect", _collect, "charge what Slurm's plugin has signed, each once"))
    refund = _action(actions, "refund", _refund, "give back a charge or a part of it")
    refund.add_argument(
        "transaction", metavar="TRANSACTION", help="number of the charge, as statement shows it"
    )
    refund.add_argument("--su", metavar="SU", help="how much of it (default: what is left)")
    refund.add_argument(
        "--release",
        action="store_true",
        help="give back what is left, and let the same profile be charged again",
    )
    _add_words(refund)
    statement = _action(actions, "statement", _statement, "show what came to an account and went from it")
    statement.add_argument("account", metavar="NAME", help="the account")
    _action(actions, "list", _list, "show all accounts")
    _action(actions, "audit", _audit, "check that no unit was lost or made; exit code 1 if one was")


def _action(actions: Any, name: str, function: Any, words: str) -> argparse.ArgumentParser:
    parser = helping.action(actions, f"ledger {name}", words, _EXAMPLES.get(name, ""))
    option = config.BY_KEY["ledger"]
    parser.add_argument(option.flag, metavar="FILE|URL", help=f"{option.help} ({option.env})")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    parser.set_defaults(act=function)
    return parser


def _add_open(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("account", metavar="NAME", help="the account")
    parser.add_argument("--grant", metavar="SU", default="0", help="units to begin with (default 0)")
    parser.add_argument(
        "--overdraft", metavar="SU", default="0", help="how far the balance may go below 0 (default 0)"
    )


def _add_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--reference",
        metavar="TEXT",
        default="",
        help="do it once, however often it is called with this text",
    )
    parser.add_argument("--note", metavar="TEXT", default="", help="words for the statement")


def _add_charge(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("account", metavar="NAME", help="the account")
    parser.add_argument("files", metavar="PROFILE", nargs="+", help="profiles that jobs wrote")
    add_tariff(parser, "never that of the profile")
    parser.add_argument("--cores", metavar="N", help="cores to charge for (default: those of the profile)")
    parser.add_argument("--wall-s", metavar="S", help="run time to charge for, s (default: the profile's)")
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
        help="who pays: the account of the job's user (default), or that of its account in Slurm",
    )
    parser.add_argument(
        "--grace-s",
        metavar="S",
        default="3600",
        help="charge a step without a profile when its record is so old (default 3600; 0: at once)",
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be charged; charge nothing")


def run(args: argparse.Namespace) -> int:
    """Do what was asked."""
    for name in ("account", "reference", "note", "job_id"):
        _check_text(name, getattr(args, name, None) or "")
    return int(args.act(args))


def _check_text(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{name} is no UTF-8 text, got {text!r}: write it in UTF-8") from None


def _ledger(args: argparse.Namespace, *, create: bool = False) -> Ledger:
    from mpicoloc.bill import ledger as default_ledger

    return default_ledger.open_ledger(args.ledger or config.get("ledger"), create=create)


def _stamp() -> Stamp:
    from mpicoloc.bill import ledger as default_ledger

    return default_ledger.stamp_now()


def _open(args: argparse.Namespace) -> int:
    from mpicoloc.bill import terminal as report
    from mpicoloc.bill.ledger import check_name

    check_name(args.account)
    grant_usu, overdraft_usu = (
        service_units.usu_of_text(text, flag)
        for text, flag in ((args.grant, "--grant"), (args.overdraft, "--overdraft"))
    )
    posting = _ledger(args, create=True).open_account(args.account, grant_usu, overdraft_usu, _stamp())
    report.show_posting(posting, f"account {args.account} opened", args.json)
    return 0


def _grant(args: argparse.Namespace) -> int:
    from mpicoloc.bill import terminal as report

    amount_usu = service_units.usu_of_text(args.su, "SU")
    posting = _ledger(args).grant(args.account, amount_usu, _stamp(), args.reference, args.note)
    report.show_posting(
        posting, f"{service_units.su_text(posting.amount_usu)} SU granted to {args.account}", args.json
    )
    return 0


def _charge(args: argparse.Namespace) -> int:
    from mpicoloc.bill import charges

    ledger, stamp = _ledger(args), _stamp()
    n_cores = None if args.cores is None else config.parse_whole("--cores", args.cores, most=2**31 - 1)
    wall_s = None if args.wall_s is None else config.parse_seconds("--wall-s", args.wall_s)
    tariff = charges.tariff_of(getattr(args, "price.rate_su"), getattr(args, "price.pricing"))
    terms = charges.Terms(tariff, n_cores, wall_s, args.job_id, None)
    case = (ledger, args.account)
    return charges.post_all(case, args.files, terms, stamp, key_file=args.key_file, is_json=args.json)


def _collect(args: argparse.Namespace) -> int:
    from mpicoloc.bill import charges
    from mpicoloc.profile.signature import KeyFile
    from mpicoloc.slurm.collect import CollectSettings, collect

    ledger, stamp = _ledger(args), _stamp()
    path = args.key_file or config.get("sign_key_file")
    if path is None:
        raise UsageError(
            "--key-file is missing: what is in a spool is charged only if the site has signed it"
        )
    grace_s = config.parse_seconds("--grace-s", args.grace_s)
    tariff = charges.tariff_of(getattr(args, "price.rate_su"), getattr(args, "price.pricing"))
    settings = CollectSettings(KeyFile(str(path)), tariff, args.by, grace_s)
    return collect(args.spool, ledger, settings, stamp, is_dry=args.dry_run, is_json=args.json)


def _refund(args: argparse.Namespace) -> int:
    from mpicoloc.bill import terminal as report

    if not (args.transaction.isascii() and args.transaction.isdigit() and len(args.transaction) < 19):
        raise UsageError(f"TRANSACTION must be a number, got {args.transaction!r}")
    amount_usu = None if args.su is None else service_units.usu_of_text(args.su, "--su")
    posting = _ledger(args).refund(
        int(args.transaction), amount_usu, _stamp(), args.reference, args.note, release=args.release
    )
    text = f"{service_units.su_text(posting.amount_usu)} SU of transaction {args.transaction} given back"
    after = ", its profile may be charged again" if args.release else ""
    report.show_posting(posting, f"{text} to {posting.account}{after}", args.json)
    return 0


def _statement(args: argparse.Namespace) -> int:
    from mpicoloc.bill import terminal as report

    report.show_statement(args.account, _ledger(args).statement(args.account), args.json)
    return 0


def _list(args: argparse.Namespace) -> int:
    from mpicoloc.bill import terminal as report

    report.show_accounts(_ledger(args).accounts(), args.json)
    return 0


def _audit(args: argparse.Namespace) -> int:
    from mpicoloc.bill import terminal as report
    from mpicoloc.bill.audit import audit

    wrong = audit(_ledger(args))
    report.show_audit(wrong, args.json)
    return 1 if wrong else 0
