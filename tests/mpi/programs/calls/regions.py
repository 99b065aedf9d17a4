from mpi4py import MPI

from mpicoloc import regions

for _ in range(4):
    with regions.region("step"):
        MPI.COMM_WORLD.barrier()
    regions.units(2)
