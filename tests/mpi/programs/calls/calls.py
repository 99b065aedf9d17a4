"""Known calls through mpi4py."""

import sys

from mpi4py import MPI

world = MPI.COMM_WORLD
data = bytearray(100)
for _ in range(10):
    world.Sendrecv(
        b"x" * 100, (world.rank + 1) % world.size, recvbuf=data, source=(world.rank - 1) % world.size
    )
total = world.allreduce(world.rank)
world.Barrier()
objects = world.allgather({"rank": world.rank})
sys.stdout.write(
    f"rank {world.rank} of {world.size}: {total} {objects} {world.Get_attr(MPI.TAG_UB) > 32000}\n"
)
sys.stdout.flush()
sys.exit(5 if world.rank == 0 else 0)
