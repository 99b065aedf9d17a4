"""Check whether a profile was changed after signing.

Exit code 0: it is signed with this key and unchanged. 1: it is unsigned, changed, or signed with another
key.

  mpicoloc verify mpicoloc-1234.h5 --key-file /etc/mpicoloc/site.key
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import TYPE_CHECKING, Any

from mpicoloc import config
from mpicoloc.errors import UsageError, printable

if TYPE_CHECKING:
    from mpicoloc.profile import signature


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("file", metavar="FILE", help="profile")
    add_key_file(parser)
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def add_key_file(parser: argparse.ArgumentParser) -> None:
    """The flag for the site's key."""
    env = config.BY_KEY["sign_key_file"].env
    parser.add_argument(
        "--key-file",
        metavar="KEYFILE",
        help=f"file with the site's key, readable only by its owner ({env})",
    )


def key_of(args: argparse.Namespace, why: str = "name the file with the site's key") -> signature.KeyFile:
    """The key whose file the command line or the environment names. The file is read when first needed."""
    from mpicoloc.profile import signature

    path = args.key_file or config.get("sign_key_file")
    if path is None:
        raise UsageError(f"--key-file is missing: {why}")
    return signature.KeyFile(str(path))


def run(args: argparse.Namespace) -> int:
    """Print the result. Returns 1 if the signature is not good."""
    from mpicoloc.profile import signature

    key = key_of(args)
    named = signature.key_id(key)
    taken = signature.snapshot(args.file)
    verdict = signature.verify(taken, key)
    if args.json:
        print(json.dumps(answer(taken, verdict), indent=2))
    elif verdict.is_good:
        print(f"{printable(args.file)}: signed with this key ({named}) and unchanged since")
    else:
        print(f"{printable(args.file)}: {verdict.reason}")
    return 0 if verdict.is_good else 1


def answer(taken: Any, verdict: Any) -> dict[str, Any]:
    """The result as plain values."""
    found = verdict.signature
    return {
        "file": taken.path,
        "job": taken.profile.job.id,
        "digest": taken.digest,
        "is_good": verdict.is_good,
        "reason": verdict.reason or None,
        "signature": None if found is None else dataclasses.asdict(found),
    }
