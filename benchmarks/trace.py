"""How fast a trace is written and read, and what an event takes on disk, beside plain h5py and beside OTF2.

    python benchmarks/trace.py [--events 100000000] [--ranks 16] [--folder .] [--json FILE]

Make-believe ranks (`calls/rings.c`) fill their rings in shared memory as fast as one thread, the node
agent's, writes them to a file. In brackets: per second of processor of who writes or reads, which holds on a
busy machine as well. The same events are written and read with h5py (a compound dataset, chunks as large as a
block of the trace), and such calls with OTF2's own library (`calls/otf2.c`: enter, message, leave), if it is
installed (Debian: libopen-trace-format2-dev). Readers add up durations. Files are in the page cache when they
are read.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import programs
from accuracy import progress
from accuracy_tables import print_table

from mpicoloc import config
from mpicoloc.pmpi import sources
from mpicoloc.trace import reader

CSRC = Path(__file__).resolve().parents[1] / "csrc"
RING = 65536
TARGET_PER_S, TARGET_BYTES = 5e6, 16
H5_WAYS = {"h5py": {}, "h5py lzf": {"compression": "lzf", "shuffle": True},
           "h5py gzip": {"compression": "gzip", "compression_opts": 4, "shuffle": True}}  # fmt: skip


def compiled(source, out, *flags):
    """The program, or None where it cannot be compiled."""
    command = ["cc", "-O2", "-std=gnu11", str(programs.CALLS / source), "-o", str(out), *map(str, flags)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return out if done.returncode == 0 else None


def numbers(*command, **env):
    """What a program prints."""
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=True, env={**os.environ, **env}
    )
    return [float(word) for word in done.stdout.split()]


def size_of(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def write_trace(program, place, args):
    """The row of one written trace."""
    shm = Path(tempfile.mkdtemp(prefix="mpicoloc-bench-", dir="/dev/shm"))
    try:
        n, wall_s, cpu_s = numbers(
            program, "bench", args.ranks, RING, args.events, place / "job.h5", MPICOLOC_SHM_DIR=str(shm)
        )
    finally:
        shutil.rmtree(shm)
    row = {"n": int(n), "bytes": size_of(place / "job.trace") / n}
    return row | {"write_per_s": n / wall_s, "write_per_cpu_s": n / cpu_s}


def now_s():
    """The time, and that of the processor which this process had."""
    return np.array([time.monotonic(), time.process_time()])


def rates(what, n, spent_s):
    return {f"{what}_per_s": n / spent_s[0], f"{what}_per_cpu_s": n / spent_s[1]}


def read_trace(folder):
    """Seconds of reading all of it, one rank, and a hundredth of its time."""
    begin_s = time.monotonic()
    found = reader.read_folder(folder)
    opened_s = time.monotonic() - begin_s
    before_s = now_s()
    total = sum(int(piece["duration_ns"].sum()) for piece in found.frames())
    all_s, all_cpu_s = (now_s() - before_s).tolist()
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    begin_s = time.monotonic()
    n_rank = len(found.frame(ranks=[0]))
    rank_s = time.monotonic() - begin_s
    ends = [file.index["t_max"].max() - file.t_init_ns for file in found.files]
    begin_s = time.monotonic()
    n_part = len(found.frame(begin_s=0.5e-9 * max(ends), end_s=0.51e-9 * max(ends)))
    part_s = time.monotonic() - begin_s
    return {"n": found.n_events, "open_s": opened_s, "all_s": all_s, "all_cpu_s": all_cpu_s,
            "rank_s": rank_s, "n_rank": n_rank,
            "part_s": part_s, "n_part": n_part, "peak_bytes": peak_bytes, "total_ns": total}  # fmt: skip


def first_events(folder, n):
    """As many rows of the trace as h5py is to write."""
    pieces, n_found = [], 0
    for piece in reader.read_folder(folder).frames():
        kinds = {"call": piece["call"].cat.codes, "message": piece["message"].cat.codes}
        pieces.append(np.rec.fromarrays([(kinds.get(name, piece[name])).to_numpy() for name in piece],
                                        names=list(piece)))  # fmt: skip
        n_found += len(piece)
        if n_found >= n:
            break
    return np.concatenate(pieces)[:n]


def h5py_row(rows, path, options):
    import h5py

    begin_s = now_s()
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset(
            "events", (0,), rows.dtype, maxshape=(None,), chunks=(32768,), **options
        )
        for begin in range(0, len(rows), 32768):
            dataset.resize((min(begin + 32768, len(rows)),))
            dataset[begin:] = rows[begin : begin + 32768]
    written_s = now_s() - begin_s
    total = 0
    with h5py.File(path) as file:
        for begin in range(0, len(rows), 32768):
            total += int(file["events"][begin : begin + 32768]["duration_ns"].sum())
    read_s = now_s() - begin_s - written_s
    assert total == int(rows["duration_ns"].sum())
    row = {"n": len(rows), "bytes": path.stat().st_size / len(rows)}
    path.unlink()
    return row | rates("write", len(rows), written_s) | rates("read", len(rows), read_s)


def otf2_row(program, folder, args):
    n, *written_s = numbers(program, "write", folder / "otf2", args.ranks, args.peer_events)
    _, *read_s = numbers(program, "read", folder / "otf2", args.ranks, args.peer_events)
    row = {"n": int(n), "bytes": size_of(folder / "otf2") / n}
    return row | rates("write", n, written_s) | rates("read", n, read_s)


def measure(args, folder):
    """Rows by way; the trace's own reading apart."""
    (folder / "options_gen.h").write_text(config.c_table())
    files = sources.c_files(CSRC, ("common", "trace"))
    rings = compiled("rings.c", folder / "rings", f"-I{folder}", f"-I{CSRC}", *files, "-lm", "-lpthread")
    if rings is None:
        raise SystemExit("the program that writes cannot be compiled: see `cc`")
    rows = {}
    memory = Path(tempfile.mkdtemp(prefix="mpicoloc-bench-", dir="/dev/shm"))
    try:
        rows["mpicoloc, in memory"] = write_trace(rings, memory, args)
    finally:
        shutil.rmtree(memory)
    progress("written to memory")
    rows["mpicoloc"] = write_trace(rings, folder, args)
    progress("written to disk")
    command = [sys.executable, __file__, "--read", str(folder / "job.trace")]
    reading = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    rows["mpicoloc"] |= rates("read", reading["n"], (reading["all_s"], reading["all_cpu_s"]))
    progress("read")
    events = first_events(folder / "job.trace", min(args.peer_events, args.events))
    for name, options in H5_WAYS.items():
        rows[name] = h5py_row(events, folder / "events.h5", options)
        progress(name)
    otf2 = compiled("otf2.c", folder / "otf2-program", "-lopen-trace-format2") or compiled(
        "otf2.c", folder / "otf2-program", "-lotf2"
    )
    if otf2:
        rows["OTF2"] = otf2_row(otf2, folder, args)
    return rows, reading


def print_rows(rows, reading):
    def cell(row, what):
        if f"{what}_per_s" not in row:
            return ""
        return f"{row[f'{what}_per_s'] * 1e-6:.1f} ({row[f'{what}_per_cpu_s'] * 1e-6:.1f})"

    lines = [
        (way, f"{row['n']:,}", f"{row['bytes']:.1f}", cell(row, "write"), cell(row, "read"))
        for way, row in rows.items()
    ]
    print_table(("way", "events", "bytes an event", "written, M/s", "read, M/s"), lines)
    if "OTF2" not in rows:
        print("OTF2's library is not installed (Debian: libopen-trace-format2-dev)\n")
    what = {"list of blocks": ("open_s", "n"), "all, piece by piece": ("all_s", "n"),
            "one rank": ("rank_s", "n_rank"), "1 % of the time": ("part_s", "n_part")}  # fmt: skip
    lines = [(name, f"{reading[n]:,}", f"{reading[seconds]:.2f}") for name, (seconds, n) in what.items()]
    print_table(("reading", "events", "s"), lines)
    print(f"memory of the reader of all, piece by piece: {reading['peak_bytes'] / (1 << 20):.0f} MiB")
    per_s = min(row["write_per_s"] for way, row in rows.items() if way.startswith("mpicoloc"))
    n_bytes = rows["mpicoloc"]["bytes"]
    print(f"at least {TARGET_PER_S:,.0f} events/s: {'met' if per_s >= TARGET_PER_S else 'missed'}")
    print(f"at most {TARGET_BYTES} bytes an event: {'met' if n_bytes <= TARGET_BYTES else 'missed'}")


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=100_000_000, help="events of the trace")
    parser.add_argument("--peer-events", type=int, default=10_000_000, help="events for h5py and OTF2")
    parser.add_argument("--ranks", type=int, default=16, help="ranks of the node")
    parser.add_argument("--folder", type=Path, default=Path(), help="where to write, some GB")
    parser.add_argument("--json", type=Path, help="write the numbers to this file, too")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.read:
        print(json.dumps(read_trace(args.read)))
        return
    with tempfile.TemporaryDirectory(prefix="mpicoloc-trace-", dir=args.folder) as folder:
        rows, reading = measure(args, Path(folder).resolve())
    print_rows(rows, reading)
    if args.json:
        args.json.write_text(json.dumps({"rows": rows, "reading": reading}, indent=1))


if __name__ == "__main__":
    main()
