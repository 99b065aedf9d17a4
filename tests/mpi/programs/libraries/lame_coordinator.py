"""Coordinators of two nodes write a profile together; the second one cannot import what reads its files."""

import os
import sys
from types import SimpleNamespace

from mpi4py import MPI

from mpicoloc.job import coordinator

os.environ["MPICOLOC_KEY"] = key = "lame"
if MPI.COMM_WORLD.rank == 1:
    sys.modules["mpicoloc.profile.collect"] = None
writer = SimpleNamespace(call=lambda function, *arguments: function(*arguments))
coordinator._guarded(coordinator._write_profile, key, MPI.COMM_WORLD, writer)
MPI.COMM_WORLD.Barrier()
# One write: a launcher may put what others write between a line and its end.
os.write(1, b"rank %d goes on\n" % MPI.COMM_WORLD.rank)
