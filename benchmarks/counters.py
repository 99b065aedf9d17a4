"""What it costs a rank to count events over its whole run: its begin and end, threads, forks, switches.

    python benchmarks/counters.py [--rounds 15] [--json FILE]

One process on one processor, no MPI (`calls/counters.c`). `none` counts nothing; `as it is` asks for the
default events, which cost a refusal each where there is no PMU; of `page faults` there are three; `ten` are
as many as there are of hardware, each of them page faults here: what the kernel does for each, without a
PMU's own registers. With `nobody` no other process of the machine counts before the three, else one does.
Rounds in random order; median and quartiles, in us. *start* is in `MPI_Init`, *stop* in `MPI_Finalize`,
*switch* two switches of threads, *thread* and *fork* one that ends at once.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from accuracy_tables import print_table

from mpicoloc import config
from mpicoloc.core import counters
from mpicoloc.pmpi import sources

ROOT = Path(__file__).resolve().parents[1]
FAULTS = ",".join(event.name for event in counters.EVENTS if not event.is_hardware)
KERNEL_S = 2
"""The kernel goes on as if somebody counted for a second."""
STEPS = ("start", "thread", "fork", "switch", "stop")
WAYS = {
    "none": ("true", "off"),
    "as it is": ("true", "on"),
    "nobody": ("true", FAULTS),
    "page faults": ("true", FAULTS),
    "ten": ("stand-ins", "on"),
}


def table_of(kind):
    """The option table for C; stand-ins: events of hardware are page faults."""
    text = config.c_table()
    for event in counters.EVENTS if kind == "stand-ins" else ():
        text = text.replace(f"{event.type}, {event.config}", "PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS")
    return text


def build(kind, folder):
    """The program, with that table."""
    csrc = folder / kind
    shutil.copytree(ROOT / "csrc", csrc)
    (csrc / "options_gen.h").write_text(table_of(kind))
    folders = (csrc / "guest", csrc / "guest/count")
    guest = [path for name in folders for path in name.glob("*.c") if path.name != "gate.c"]
    files = [*sources.c_files(csrc, ("common",)), *guest, ROOT / "benchmarks/calls/counters.c"]
    flags = ["-O2", "-std=gnu11", f"-I{csrc}"]
    program = csrc / "counters"
    subprocess.run(["cc", *flags, *map(str, files), "-o", program, "-lm", "-lpthread", "-ldl"], check=True)
    return program


def environment(events, folder):
    return {**os.environ, "MPICOLOC_COUNTERS": events, "MPICOLOC_SHM_DIR": str(folder)}


def one_run(program, events, folder):
    """Microseconds by step."""
    command = ["taskset", "-c", str(max(os.sched_getaffinity(0))), program]
    done = subprocess.run(
        command, env=environment(events, folder), capture_output=True, text=True, check=True, timeout=60
    )
    words = done.stdout.split()
    return dict(zip(words[::2], map(float, words[1::2]), strict=True))


@contextlib.contextmanager
def another(program, folder):
    """Meanwhile another process counts."""
    command = [program, "hold"]
    process = subprocess.Popen(command, env=environment(FAULTS, folder), stdin=subprocess.PIPE)
    time.sleep(0.1)
    try:
        yield
    finally:
        process.stdin.close()
        process.wait(10)


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15, help="runs of each way")
    parser.add_argument("--json", help="write the rows to this file")
    args = parser.parse_args(argv)
    found = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        programs = {kind: build(kind, folder) for kind in ("true", "stand-ins")}
        for _ in range(args.rounds):
            for way in random.sample(list(WAYS), len(WAYS)):
                kind, events = WAYS[way]
                if way == "nobody":
                    time.sleep(KERNEL_S)
                with contextlib.nullcontext() if way == "nobody" else another(programs["true"], folder):
                    found[way].append(one_run(programs[kind], events, folder))
    rows = [
        {"way": way, **{step: [run[step] for run in runs] for step in STEPS}} for way, runs in found.items()
    ]
    cells = [[row["way"], *(quartiles(row[step]) for step in STEPS)] for row in rows]
    print_table(("us", *STEPS), cells)
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1))
    return 0


def quartiles(values):
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.1f} ({low:.1f} to {high:.1f})"


if __name__ == "__main__":
    sys.exit(main())
