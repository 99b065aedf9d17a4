"""Put the result of `run` into its table: row.py LOG SUITE SLURM OPENMPI MPICH PYTHON."""

import re
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "docs/reference/conformance.md"
HEAD = "| Debian | Slurm | Open MPI | MPICH | Python | demo | tests passed | failed | skipped |\n"
WORDS = {"passed": ("passed",), "failed": ("failed", "error", "errors"), "skipped": ("skipped",)}


def row(log, names):
    """The table's row: these names, and what the demo and pytest's last lines in the log say."""
    lines = re.findall(r"^(?:=+ )?(\d+ \w+(?:, \d+ \w+)*) in [\d.]+s", log, re.MULTILINE)
    found = [pair.split() for line in lines for pair in line.split(", ")]
    counts = [sum(int(n) for n, word in found if word in words) for words in WORDS.values()]
    demo = "runs" if "more of a profile:" in log else "fails"  # its last line
    return "| " + " | ".join([*names, demo, *map(str, counts)]) + " |\n"


def put(page, made):
    """The page with this row instead of that of the same name, or behind the last one."""
    before, head, after = page.partition(HEAD)
    rule, *rows = re.match(r"(?:\|.*\n)+", after).group().splitlines(keepends=True)
    kept = [old for old in rows if old.split("|")[1] != made.split("|")[1]]
    return before + head + rule + "".join(sorted([*kept, made])) + after[len(rule + "".join(rows)) :]


if __name__ == "__main__":
    log_path, *names = sys.argv[1:]
    PAGE.write_text(put(PAGE.read_text(), row(Path(log_path).read_text(errors="replace"), names)))
