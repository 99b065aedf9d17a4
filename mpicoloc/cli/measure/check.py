"""Check what works on this machine, and how to mend what does not.

Exit code 0: a job can be measured here. 1: it cannot; the lines marked `no` say what is missing.

  mpicoloc check
  mpicoloc check --clean
"""

from __future__ import annotations

import argparse
import json
import sys

from mpicoloc.checkup import checks

_MARKS = {"ok": "ok  ", "note": "note", "fail": "no  "}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("--json", action="store_true", help="print the findings for a program")
    parser.add_argument(
        "--clean", action="store_true", help="remove the files in memory of your jobs that are dead"
    )


def run(args: argparse.Namespace) -> int:
    """Print the findings; returns 1 when a job cannot be measured here."""
    findings = checks.all_findings(args.clean)
    works = not any(finding.state == "fail" for finding in findings)
    if args.json:
        print(json.dumps({"works": works, "findings": [finding._asdict() for finding in findings]}, indent=2))
        return 0 if works else 1
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        print(f"{_MARKS[finding.state]} {finding.name:{width}}  {finding.text}")
        if finding.remedy:
            print(f"     {'':{width}}  -> {finding.remedy}")
    print("Jobs can be measured here." if works else "Jobs cannot be measured here; see the lines marked no.")
    sys.stdout.flush()
    return 0 if works else 1
