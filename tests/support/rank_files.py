"""Shared memory as a job of two ranks leaves it: the node's file and a segment of each rank."""

import numpy as np

from mpicoloc.pmpi import contract

S = 1_000_000_000
KEY = "testkey"


def header(record):
    record["magic"], record["abi_version"] = contract.MC_MAGIC, contract.MC_ABI_VERSION
    record["key"], record["size_bytes"] = KEY.encode(), record.nbytes
    return record


def lane(n=10, sent=80, received=80):
    """A thread that made n sends, n receives and n reductions."""
    new = np.zeros((), contract.dtype("mc_lane"))
    head = new["head"]
    head["owner_tid"] = head["n_owners"] = 1
    for row, call, moved, part in ((5, 1, (8 * n, 8 * n), 2), (6, 2, (0, received), 4), (7, 3, (sent, 0), 4)):
        new["sites"][row] = (row, call, 0, 0x100 * row, n, n, *moved, S // part, S // 100)
    head["gap_ns"] = 3 * S
    new["peers"][3] = (9, 1, 4, n, sent, n, received)
    cycle = new["cycles"][2]
    cycle["key"], cycle["from"], cycle["to"] = 1, 5, 6
    cycle["corun"][3], cycle["alone"] = (2 * S, S // 2, n), (S, S // 2, n)
    return new


def write_rank(rank, n_ranks=2, state=None, lanes=(), **fields):
    segment = header(np.zeros(1, contract.dtype("mc_segment"))[0])
    segment["world_rank"], segment["world_size"], segment["local_rank"] = rank, n_ranks, rank
    segment["n_nodes"], segment["n_cores"], segment["mode"] = 1, 2, contract.MC_MODE_WRAP
    segment["cpu_mask"][0] = 0b11
    segment["state"] = contract.MC_RANK_FINALIZING if state is None else state
    segment["t_init"], segment["t_finalize"] = 10 * S, 14 * S
    segment["job_id"], segment["command"] = b"job", b"app -x"
    segment["mpi_library"] = b"Open MPI v4"
    segment["n_modules"] = segment["modules"]["is_complete"][0] = 1
    segment["modules"]["path"][0] = b"/bin/app"
    segment["out_path"] = fields.pop("out_path", b"/nowhere/mpicoloc-job.h5")
    for name, value in fields.items():
        segment[name] = value
    segment["size_bytes"] += segment["n_events_max"] * contract.dtype("mc_event").itemsize
    for i, one in enumerate(lanes or (lane(),)):
        segment["lanes"][i] = one
    path = contract.shm_path(KEY, f"{rank}.seg")
    with open(path, "wb") as file:
        file.write(segment.tobytes())
    return path


def write_node(**fields):
    node = header(np.zeros(1, contract.dtype("mc_node"))[0])
    node["meter"], node["t_open"], node["t_last"] = contract.MC_METER_BURST, 10 * S, 15 * S
    node["n_corunners"], node["shared_ns"] = 1, 3 * S
    other = {"job_id": b"other", "owner": 1, "t_first": 11 * S, "t_last": 14 * S, "cpu_ns": 2 * S}
    for name, value in other.items():
        node["corunners"][name][0] = value
    node["n_shutters"] = 2
    node["shutters"]["t0"][:2] = 12 * S, 13 * S
    node["shutters"]["verdict"][:2] = contract.MC_VERDICT_VALID, contract.MC_VERDICT_MOVED
    for name, value in fields.items():
        node[name] = value
    with open(contract.shm_path(KEY, "node"), "wb") as file:
        file.write(node.tobytes())
