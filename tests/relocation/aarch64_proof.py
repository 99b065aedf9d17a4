"""Proof that moved instructions of aarch64 do what they did, over the instructions of files: in the emulator
unicorn, and by a look at each with Capstone. By hand, with the packages `capstone` and `unicorn`:

    python tests/relocation/aarch64_proof.py FILE ...

Exit code 1: some instruction differed, or Capstone does not agree that it may be moved."""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]

import aarch64_lab as lab  # noqa: E402
import capstone  # noqa: E402

ADDRESSES = (0x1000, 0x7654000)
NEVER_MOVED = re.compile(
    r"(b|bl|br|blr|b\..*|ret.*|[ct]bn?z|adrp?|ld[a]?x[rp].*|stl?x[rp].*|clrex|svc|hvc|smc|brk|hlt|mrs|msr|sys|dc|ic|at"
    r"|tlbi|dmb|dsb|isb|hint|nop|yield|wf[ei]t?|sevl?|prfu?m|pac.*|aut.*|xpac.*|bti|eret.*|bra.*|blra.*|ldra[ab])$"
)
PLAIN_STACK_OPERAND = re.compile(r"\[sp(, [^\]]+)?\]$")


def look(words: set[int]) -> Counter[str]:
    """What another disassembler says of these instructions."""
    machine = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
    counts: Counter[str] = Counter()
    for word in sorted(words):
        code = word.to_bytes(4, "little")
        here, there = ([row[2:] for row in machine.disasm_lite(code, at)] for at in ADDRESSES)
        if not here:
            counts["unknown"] += 1
            continue
        ((name, operands),) = here
        is_wrong = NEVER_MOVED.match(name) or re.search(r"\bw?sp\b", PLAIN_STACK_OPERAND.sub("", operands))
        counts["refused" if is_wrong or here != there else "agreed"] += 1
        if is_wrong or here != there:
            print(f"{word:08x} {name} {operands}", flush=True)
    return counts


def main() -> int:
    """Look at and execute what the rules admit in these files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--executed", type=int, default=100_000, help="different instructions to execute")
    parser.add_argument("--states", type=int, default=1, help="random states for each")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        ffi, library = lab.load_library(Path(folder))
        words: set[int] = set()
        totals: Counter[str] = Counter()
        for path in options.files:
            counts, found = lab.admitted(ffi, library, path)
            tell(path.name, counts)
            totals.update(counts)
            words |= found
        totals["different"] = len(words)
        tell("all", totals)
        looked = look(words)
        tell("Capstone", looked)
        emulator = lab.Emulator(ffi, library, rng)
        for word in rng.sample(sorted(words), min(options.executed, len(words))):
            emulator.compare(word, options.states)
        tell("in the emulator", emulator.counts)
    return int(emulator.counts["difference"] > 0 or looked["refused"] > 0)


def tell(title: str, counts: Counter[str]) -> None:
    """A line with these numbers."""
    print(f"{title}: " + ", ".join(f"{name} {number}" for name, number in counts.items()), flush=True)


if __name__ == "__main__":
    sys.exit(main())
