"""Every instruction that may be replaced, of the largest programs and libraries: run as it is and relocated.

By hand, for everything: ``python tests/relocation/relocation_proof.py``; minutes to an hour. Needs the wheels
`capstone` and `unicorn`. Exit code 1: some window differed.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import elf_functions
import relocation_lab as lab

RULES = ("aligned", "movable", "flags_dead", "admitted", "stopped_by_fork", "stopped_by_jump",
         "stopped_by_call", "stopped_by_return", "stopped_by_other")  # fmt: skip


def main(words: Sequence[str] | None = None) -> int:
    options = parse(words)
    with tempfile.TemporaryDirectory() as folder:
        return prove(options, Path(folder))


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("files", nargs="*", type=Path, help="these files; else the largest of --folder")
    parser.add_argument("--folder", type=Path, default=Path("/usr"))
    parser.add_argument("--largest", type=int, default=50, help="number of files")
    parser.add_argument("--instructions", type=int, default=2_000_000, help="looked at in a file")
    parser.add_argument("--windows", type=int, default=2_000_000, help="run on this processor")
    parser.add_argument("--emulated", type=int, default=20_000, help="run in the emulator")
    parser.add_argument("--states", type=int, default=4, help="random states of each window")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(words)


def prove(options: argparse.Namespace, folder: Path) -> int:
    finder, runner = lab.build_finder(folder), lab.build_runner(folder)
    rng = random.Random(options.seed)
    command = [str(runner), str(options.states), str(options.seed), str(options.windows)]
    sample: list[lab.Window] = []
    totals: Counter[str] = Counter()
    n_files = 0
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as native:
        assert native.stdin is not None and native.stdout is not None
        for path in options.files or candidates(options.folder, options.largest):
            counts, windows = lab.find_windows(finder, path, options.instructions)
            if not counts.get("long"):
                print(f"{path}: no table of functions", flush=True)
                continue
            tell_file(path, counts)
            totals.update(counts)
            native.stdin.write(windows)
            sample += choose(windows, rng, options.emulated // max(1, options.largest) * 4)
            n_files += 1
            if n_files == options.largest:
                break
        native.stdin.close()
        results = native.stdout.read()
    if native.returncode not in (0, 1):
        print(f"the runner ended with {native.returncode}: it needs AVX2, and addresses that nobody has")
    print(f"files {n_files}")
    tell("found", totals)
    tell("on this processor", lab.parse_counts(results))
    n_emulated_wrong = emulate(sample, options, folder, rng) if options.emulated else 0
    return int(native.returncode != 0 or n_emulated_wrong > 0)


def candidates(folder: Path, n: int) -> list[Path]:
    """Some have no table of functions, as Go's."""
    return elf_functions.largest_files(folder, 4 * n)


def choose(windows: bytes, rng: random.Random, n: int) -> list[lab.Window]:
    """Some of the windows, in a part of the output that is not too long to parse."""
    parsed = list(zip(lab.parse_windows(windows), range(40 * n), strict=False))
    return [window for window, _ in rng.sample(parsed, min(n, len(parsed)))]


def emulate(sample: list[lab.Window], options: argparse.Namespace, folder: Path, rng: random.Random) -> int:
    import emulate as emulator

    machine = emulator.Emulator(folder, rng)
    distinct = list({window.code: window for window in sample}.values())
    rng.shuffle(distinct)
    known = [window for window in distinct if machine.is_known(window)]
    for window in known[: options.emulated]:
        machine.compare(window, options.states)
    machine.counts["skipped_vex_or_repeated_string"] = len(distinct) - len(known)
    tell("in the emulator", machine.counts)
    return machine.counts["difference"]


def tell_file(path: Path, counts: dict[str, int]) -> None:
    shares = " ".join(f"{name} {100 * counts[name] / counts['long']:.1f}" for name in RULES)
    loops = 100 * counts["loops_with_admitted"] / max(1, counts["loops"])
    print(f"{path}: {counts['instructions']} instructions, {counts['long']} of 5 bytes or more; "
          f"% of these: {shares}; "
          f"{counts['loops']} innermost loops, {loops:.1f} % with a place", flush=True)  # fmt: skip


def tell(title: str, counts: dict[str, int]) -> None:
    print(f"{title}: " + ", ".join(f"{name} {number}" for name, number in counts.items()), flush=True)


if __name__ == "__main__":
    sys.exit(main())
