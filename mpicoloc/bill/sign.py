r"""Sign a profile with a key that only the site has, for example in the batch system's epilog.

  mpicoloc sign mpicoloc-1234.h5 --key-file /etc/mpicoloc/site.key \
      --out /var/spool/mpicoloc/1234.h5

The signature shows that the profile has not changed since the key's holder signed it, not that its numbers
are true.
"""

from __future__ import annotations

import argparse
import time

from mpicoloc.bill.verify import add_key_file, key_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("file", metavar="FILE", help="profile that a job wrote")
    add_key_file(parser)
    parser.add_argument(
        "--out", metavar="SIGNED", help="write the signed profile to this file and leave FILE unchanged"
    )


def run(args: argparse.Namespace) -> int:
    """Sign the profile, and print the path of the signed profile."""
    from mpicoloc.profile import signature

    signature.sign(args.file, key_of(args), time.time(), args.out)
    print(args.out or args.file)
    return 0
