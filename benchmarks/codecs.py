"""What the compression of a profile's tables costs and saves: time to write and read them, and their size.

    python benchmarks/codecs.py [PROFILE ...] [--rounds 5] [--json FILE]

Every way writes and reads the tables of the profiles that are given (the first of them also as it were with
64 ranks), of a synthetic one of 64 ranks with many call sites, bursts and shutters, and of one of 4,096 ranks
with their matrix of peers. A round does each way once, in random order; printed are medians over the rounds
of the processor's time, and in brackets the median ratio to the present choice (rows.STORED in
mpicoloc/store) in the same round, which holds on a busy machine as well. Ways that take longer than 2 s are
done once. Files are in the page cache when they are read. The ways of hdf5plugin are left out where it is not
installed.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np
from accuracy import progress
from accuracy_tables import print_table

from mpicoloc.core.tables import PHASES, table
from mpicoloc.profile import hdf5, rows

try:
    import hdf5plugin
except ImportError:
    hdf5plugin = None

PRESENT = "present"
CHUNK_BYTES = (1 << 16, 1 << 18, 1 << 20, 1 << 22)
SMALL_BYTES = (1, 1 << 15)
MEASURES = ("write_s", "read_s", "bytes")
N_IMPORTS = 5
SLOW_S = 2.0
CALLS = ("MPI_Send", "MPI_Irecv", "MPI_Allreduce", "MPI_Waitall", "MPI_Bcast", "MPI_Alltoallv")


def gzip(level, shuffle):
    return {"compression": "gzip", "compression_opts": level, "shuffle": shuffle}


def plugins():
    """Ways that a reader can read only with hdf5plugin."""
    if hdf5plugin is None:
        return {}
    blosc, blosc2 = hdf5plugin.Blosc, hdf5plugin.Blosc2
    return {
        "blosc lz4": blosc(cname="lz4", clevel=5, shuffle=blosc.SHUFFLE),
        "blosc zstd": blosc(cname="zstd", clevel=3, shuffle=blosc.SHUFFLE),
        "blosc2 lz4": blosc2(cname="lz4", clevel=5, filters=blosc2.SHUFFLE),
        "blosc2 zstd": blosc2(cname="zstd", clevel=3, filters=blosc2.SHUFFLE),
        "zstd 3 shuffle": {**hdf5plugin.Zstd(clevel=3), "shuffle": True},
        "lz4 shuffle": {**hdf5plugin.LZ4(), "shuffle": True},
        "bitshuffle lz4": hdf5plugin.Bitshuffle(cname="lz4"),
        "bitshuffle zstd": hdf5plugin.Bitshuffle(cname="zstd", clevel=3),
    }


def ways():
    """For each way to store a table the arguments of `mpicoloc.profile.rows.stored`."""
    filters = {PRESENT: rows.STORED}
    for level in (1, 4, 9):
        filters |= {f"gzip {level}": gzip(level, False), f"gzip {level} shuffle": gzip(level, True)}
    filters |= {"lzf": {"compression": "lzf"}, "lzf shuffle": {"compression": "lzf", "shuffle": True}}
    filters |= plugins()
    found = {name: {"how": how} for name, how in filters.items()} | {"none": {"small_bytes": sys.maxsize}}
    for level in (1, 4):
        way = f"gzip {level} shuffle, chunks of"
        found[f"{way} h5py"] = {"how": {**gzip(level, True), "chunks": True}}
        for n_bytes in CHUNK_BYTES:
            found[f"{way} {n_bytes >> 10} KiB"] = {"how": gzip(level, True), "chunk_bytes": n_bytes}
    return found | {f"{PRESENT}, from {n} bytes on": {"small_bytes": n} for n in SMALL_BYTES}


def counted(rng, n_ranks, n_places):
    """Numbers of calls, their bytes and their time: alike on all ranks, but for the time."""
    n = np.tile(np.maximum(rng.lognormal(6, 2, n_places), 1).astype("u8"), n_ranks)
    size = np.tile(2 ** rng.integers(0, 20, n_places).astype("u8"), n_ranks)
    time_ns = (n * rng.lognormal(9, 0.3, len(n))).astype("u8")
    return {"n": n, "sent_bytes": n * size, "time_ns": time_ns}


def call_sites(rng, n_ranks, n_sites):
    facts = counted(rng, n_ranks, n_sites)
    where = {"rank": np.repeat(np.arange(n_ranks), n_sites), "i_site": np.tile(np.arange(n_sites), n_ranks)}
    offsets = np.sort(rng.integers(1 << 22, size=n_sites))
    calls = np.tile(rng.choice(CALLS, n_sites), n_ranks)
    largest_ns = (facts["time_ns"] / facts["n"] * rng.lognormal(2, 1, len(calls))).astype("u8")
    more = {"call": calls, "offset": np.tile(offsets, n_ranks), "n_timed": facts["n"], "max_ns": largest_ns}
    return table("call_sites", where | facts | more)


def cycles(rng, n_ranks, n_kinds, n_groups):
    """Bursts of each kind in each phase, the solo ones by groups of shutters."""
    shape = (n_ranks, n_kinds, len(PHASES) - 1, n_groups)
    rank, kind, phase, group = (index.ravel() for index in np.indices(shape))
    n = rng.poisson(np.where(phase == 0, 400, 6))
    length_ns = np.repeat(rng.lognormal(12, 2, n_ranks * n_kinds), 2 * n_groups)
    comp_ns = n * length_ns * rng.lognormal(0, 0.05, len(n))
    columns = {"rank": rank, "from_site": kind, "to_site": kind + 1, "phase": phase, "group": group, "n": n}
    return table("cycles", columns | {"comp_ns": comp_ns, "mpi_ns": 0.2 * comp_ns})


def shutters(rng, n):
    t0_ns = np.cumsum(rng.normal(2e8, 2e7, n)).astype("u8")
    hits = {f"{word}_hits": rng.poisson(1000, n) for word in ("before", "during", "after")}
    windows = {f"{word}_window_ns": rng.normal(3e6, 1e4, n) for word in ("before", "during", "after")}
    distances = {f"begin_{word}": rng.random(n) for word in ("far", "mean", "inside", "outside")}
    times = {
        "epoch": np.arange(n),
        "t0_ns": t0_ns,
        "t1_ns": t0_ns + 3_200_000,
        "verdict": rng.integers(1, 4, n),
    }
    return table("shutters", times | hits | windows | distances)


def peers(rng, n_ranks, n_peers):
    """Sixteen neighbours, at the same distances from each rank, and messages to them of several sizes."""
    src = np.repeat(np.arange(n_ranks), n_peers)
    step = np.tile(np.resize(rng.choice(np.arange(1, n_ranks), 16), n_peers), n_ranks)
    size_class = np.tile(rng.integers(3, 20, n_peers), n_ranks)
    n = np.tile(rng.integers(1, 100_000, n_peers), n_ranks)
    n_bytes = n * (2.0 ** (size_class - 1) * rng.uniform(1, 2, len(n))).astype("u8")
    both = {"n": n, "n_recv": n, "bytes": n_bytes, "recv_bytes": n_bytes[::-1]}
    return table("peers", {"src": src, "dst": (src + step) % n_ranks, "size_class": size_class} | both)


def ranks(rng, n_ranks):
    numbers = {name: rng.integers(1, 1 << 40, n_ranks) for name in ("mpi_ns", "comp_ns", "sent_bytes")}
    return table("ranks", {"rank": np.arange(n_ranks), "state": ["finalized"] * n_ranks} | numbers)


def grown(tables, n_ranks):
    """The tables as if there were so many ranks, each of which differs a little from the real ones."""
    rng, found = np.random.default_rng(1), {}
    n_real = max(len(tables["ranks"]), 1)
    for name, real in tables.items():
        column = next((c for c in ("rank", "src") if c in real.dtype.names), None)
        times = n_ranks // n_real if column else 1
        more = np.tile(real, times).copy()
        if column:
            more[column] += np.repeat(np.arange(times, dtype="i4") * n_real, len(real))
            for key in more.dtype.names:
                if key.endswith("_ns"):
                    more[key] = more[key] * rng.lognormal(0, 0.05, len(more))
        found[name] = more
    return found


def kinds(paths):
    """The tables to store, by name."""
    rng = np.random.default_rng(0)
    found = {Path(path).name: dict(hdf5.read(path).tables) for path in paths}
    if found:
        found["the first, of 64 ranks"] = grown(next(iter(found.values())), 64)
    found["64 ranks"] = {
        "ranks": ranks(rng, 64),
        "call_sites": call_sites(rng, 64, 1000),
        "cycles": cycles(rng, 64, 60, 32),
        "shutters": shutters(rng, 20_000),
        "peers": peers(rng, 64, 64),
    }
    found["4,096 ranks"] = {
        "ranks": ranks(rng, 4096),
        "call_sites": call_sites(rng, 4096, 40),
        "peers": peers(rng, 4096, 64),
    }
    return found


def write(path, tables, way):
    with h5py.File(path, "w") as file:
        for name, array in tables.items():
            file.create_dataset(name, data=array, **rows.stored(array, **way))


def read(path, tables):
    with h5py.File(path) as file:
        return {name: rows.read(file, name) for name in tables}


def once(path, tables, way):
    """Seconds of writing and of reading, and bytes."""
    started_s = time.process_time()
    write(path, tables, way)
    written_s = time.process_time()
    found = read(path, tables)
    read_s = time.process_time() - written_s
    assert all(np.array_equal(found[name].view("V1"), array.view("V1")) for name, array in tables.items())
    return {"write_s": written_s - started_s, "read_s": read_s, "bytes": os.path.getsize(path)}


def measured(tables, path, n_rounds):
    """For each way its numbers, round by round."""
    chosen = ways()
    found = {name: [] for name in chosen}
    order, rng = list(chosen), random.Random(0)
    for name in list(order):
        first = once(path, tables, chosen[name])  # the first use of a codec loads it
        if first["write_s"] > SLOW_S:
            found[name].append(first)
            order.remove(name)
    for _ in range(n_rounds):
        rng.shuffle(order)
        for name in order:
            found[name].append(once(path, tables, chosen[name]))
    return found


def medians(runs, base):
    """Median of each measure, and its median ratio to the present choice in the same round."""
    row = {}
    for name in MEASURES:
        row[name] = statistics.median(run[name] for run in runs)
        row[f"{name[:-2] if name.endswith('_s') else name}_ratio"] = statistics.median(
            run[name] / other[name] for run, other in zip(runs, base, strict=False)
        )
    return row


def import_s(module):
    """Median time to start Python, import h5py and this."""
    seconds = []
    for _ in range(N_IMPORTS):
        started_s = time.perf_counter()
        subprocess.run([sys.executable, "-c", f"import h5py, {module}"], check=True)
        seconds.append(time.perf_counter() - started_s)
    return statistics.median(seconds)


def print_rows(kind, tables, found):
    raw = sum(array.nbytes for array in tables.values())
    print(f"{kind}: {raw / 1e6:.2f} MB of tables\n")
    lines = [
        (
            name,
            f"{row['write_s'] * 1e3:.1f} ({row['write_ratio']:.2f})",
            f"{row['read_s'] * 1e3:.1f} ({row['read_ratio']:.2f})",
            f"{row['bytes'] / 1e3:,.0f} ({row['bytes_ratio']:.2f})",
        )
        for name, row in found.items()
    ]
    print_table(("way", "written, ms", "read, ms", "kB"), lines)


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("profiles", metavar="PROFILE", nargs="*", help="profiles of real jobs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the numbers to this file, too")
    args = parser.parse_args(argv)
    if hdf5plugin is None:
        print("hdf5plugin is not installed: pip install hdf5plugin\n", file=sys.stderr)
    found = {}
    with tempfile.TemporaryDirectory(prefix="mpicoloc-codecs-") as folder:
        for kind, tables in kinds(args.profiles).items():
            runs = measured(tables, os.path.join(folder, "tables.h5"), args.rounds)
            found[kind] = {name: medians(of_way, runs[PRESENT]) for name, of_way in runs.items()}
            progress(kind)
            print_rows(kind, tables, found[kind])
    imports = {name: import_s(name) for name in ("h5py", "hdf5plugin") if name == "h5py" or hdf5plugin}
    print("Python and h5py start in {h5py:.3f} s".format(**imports), end="")
    print(", with hdf5plugin in {hdf5plugin:.3f} s".format(**imports) if hdf5plugin else "")
    if args.json:
        args.json.write_text(json.dumps({"kinds": found, "import_s": imports}, indent=1))


if __name__ == "__main__":
    main()
