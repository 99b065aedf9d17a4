"""What a checkpoint costs a node, and `mpicoloc recover` afterwards.

  python benchmarks/checkpoint.py [--ranks 2 128 1024] [--nodes 32]

Ranks are files in shared memory as a job leaves them, each with 40 call sites, 32 peers, 60 kinds of cycles
and one thread. Processor time and memory are those of the process that writes a checkpoint, all of it.
`recover` is of a job on so many nodes with 128 ranks each.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from mpicoloc.pmpi import contract

SITES, PEERS, CYCLES, KEY, N_ON_NODE = 40, 32, 60, "checkpoint", 128
S = 1_000_000_000


def rows(rng, n_rows, n):
    """Places of n rows in a table that is filled by hashing."""
    return rng.choice(np.arange(1, n_rows), n, replace=False)


def segment(rng, rank, first, world_size, n_nodes, out):
    record = np.zeros(1, contract.dtype("mc_segment"))
    s = record[0]
    s["magic"], s["abi_version"], s["size_bytes"] = contract.MC_MAGIC, contract.MC_ABI_VERSION, record.nbytes
    s["key"], s["job_id"], s["command"], s["mpi_library"] = KEY.encode(), b"job", b"app", b"Open MPI v4"
    s["out_path"], s["hostname"] = str(out).encode(), f"n{first}".encode()
    s["world_rank"], s["world_size"], s["local_rank"], s["n_nodes"] = rank, world_size, rank - first, n_nodes
    s["state"], s["mode"], s["n_cores"], s["n_lanes"] = (
        contract.MC_RANK_RUNNING,
        contract.MC_MODE_WRAP,
        1,
        1,
    )
    s["start_realtime_ns"], s["t_init"], s["t_last"] = int(1.7e18), 10 * S, 70 * S
    s["cpu_mask"][(rank - first) // 64 % 16] = np.uint64(1 << (rank - first) % 64)
    s["n_modules"] = 1
    s["modules"]["path"][0] = b"/opt/bin/app"
    lane = s["lanes"][0]
    lane["head"]["n_owners"] = 1
    for name, n in (("sites", SITES), ("peers", PEERS), ("cycles", CYCLES)):
        table = lane[name]
        at = rows(rng, len(table), n)
        table["key"][at] = rng.integers(1, 1 << 62, n)
    sites, peers, cycles = lane["sites"], lane["peers"], lane["cycles"]
    for column in ("n", "n_timed", "sent_bytes", "time_ns", "max_ns", "offset"):
        sites[column][sites["key"] != 0] = rng.integers(1, 1 << 40, SITES)
    sites["call"][sites["key"] != 0] = rng.integers(1, 100, SITES)
    used = peers["key"] != 0
    peers["peer"][used], peers["n"][used] = rng.integers(0, world_size, PEERS), 1000
    peers["bytes"][used] = rng.integers(1, 1 << 40, PEERS)
    used = cycles["key"] != 0
    for column in ("n", "comp_ns", "mpi_ns"):
        cells = cycles["corun"][column]
        cells[used] = rng.integers(1, 1 << 40, (CYCLES, cells.shape[1]))
    return record.tobytes()


def write_sparse(path, content, page=4096):
    with open(path, "wb") as file:
        file.truncate(len(content))
        for at in range(0, len(content), page):
            piece = content[at : at + page]
            if piece != bytes(len(piece)):
                file.seek(at)
                file.write(piece)


def checkpoint(folder, n_ranks, first=0, world_size=None, n_nodes=1):
    """Processor time (s), wall time (s), memory (MiB) and size (bytes) of one."""
    shm = folder / "shm"
    shm.mkdir()
    rng = np.random.default_rng(first)
    for rank in range(first, first + n_ranks):
        record = segment(rng, rank, first, world_size or n_ranks, n_nodes, folder / "job.h5")
        write_sparse(shm / f"mpicoloc.{KEY}.{rank}.seg", record)
    env = {**os.environ, "MPICOLOC_SHM_DIR": str(shm), "OPENBLAS_NUM_THREADS": "1"}
    begin_s = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "mpicoloc.profile.checkpoints", KEY], env=env)
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.monotonic() - begin_s
    process.returncode = 0
    assert status == 0
    for path in shm.iterdir():
        path.unlink()
    shm.rmdir()
    size_bytes = (folder / "job.parts" / f"{first}.part").stat().st_size
    return usage.ru_utime + usage.ru_stime, wall_s, usage.ru_maxrss / 1024, size_bytes


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 128, 1024], help="on one node")
    parser.add_argument("--nodes", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print("| ranks on the node | processor time, s | wall, s | memory, MiB | on disk, bytes |")
    print("| --- | --- | --- | --- | --- |")
    for n_ranks in options.ranks:
        found = []
        for _ in range(options.repeats):
            with tempfile.TemporaryDirectory() as folder:
                found.append(checkpoint(Path(folder), n_ranks))
        cpu_s, wall_s, memory, size = np.median(found, axis=0)
        print(f"| {n_ranks} | {cpu_s:.2f} | {wall_s:.2f} | {memory:.0f} | {size:,.0f} |", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        n_all = options.nodes * N_ON_NODE
        for i in range(options.nodes):
            checkpoint(Path(folder), N_ON_NODE, i * N_ON_NODE, n_all, options.nodes)
        begin_s = time.monotonic()
        command = [sys.executable, "-m", "mpicoloc", "recover", f"{folder}/job.h5"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        wall_s = time.monotonic() - begin_s
        size = os.path.getsize(f"{folder}/job.h5")
        print(
            f"\nrecover of {n_all:,} ranks on {options.nodes} nodes: {wall_s:.1f} s, profile {size:,} bytes"
        )


if __name__ == "__main__":
    main()
