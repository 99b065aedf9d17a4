"""Two coordinators with a node each, played by two folders; the second holds rank 0 of the application."""

import os
import sys
from types import SimpleNamespace

import numpy as np
from mpi4py import MPI

from mpicoloc.job import coordinator
from mpicoloc.pmpi import contract

KEY = "two"


def write_segment(world_rank, out_path):
    segment = np.zeros(1, contract.dtype("mc_segment"))[0]
    segment["magic"], segment["abi_version"] = contract.MC_MAGIC, contract.MC_ABI_VERSION
    segment["size_bytes"] = segment.nbytes
    segment["world_rank"], segment["world_size"], segment["n_nodes"] = world_rank, 2, 2
    segment["state"], segment["t_init"], segment["t_finalize"] = contract.MC_RANK_FINALIZING, 1, 10**9
    segment["cpu_mask"][0] = 1
    segment["job_id"], segment["out_path"] = b"two", out_path.encode()
    with open(contract.shm_path(KEY, f"{world_rank}.seg"), "wb") as file:
        file.write(segment.tobytes())


def write_node():
    node = np.zeros(1, contract.dtype("mc_node"))
    node["magic"], node["abi_version"] = contract.MC_MAGIC, contract.MC_ABI_VERSION
    node["size_bytes"] = node.nbytes
    with open(contract.shm_path(KEY, "node"), "wb") as file:
        file.write(node.tobytes())


def main(folder, what):
    rank = MPI.COMM_WORLD.Get_rank()
    os.environ["MPICOLOC_SHM_DIR"] = f"{folder}/node{rank}"
    os.mkdir(f"{folder}/node{rank}")
    write_node()
    if rank == 1 or what == "both":
        write_segment(1 - rank, f"{folder}/two.h5")
    node = contract.map_file(contract.shm_path(KEY, "node"))  # it is removed before the ranks are told
    writer = SimpleNamespace(call=lambda function, *arguments: function(*arguments))
    coordinator._write_profile(KEY, MPI.COMM_WORLD, writer)
    state = node["profile"]
    print("written" if state == contract.MC_PROFILE_WRITTEN else f"state {state}", flush=True)


main(*sys.argv[1:])
