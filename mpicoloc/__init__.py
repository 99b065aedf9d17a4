"""mpicoloc: how much do MPI jobs that share a node slow each other down, and what is the fair price?"""

__version__ = "0.1.0"
