/* Marks 7 units of work, 2 + 5, and times a region inside another. */
#include "mpicoloc_app.h"

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    mpicoloc_begin("solve");
    for (int i = 0; i < 2; i++) {
        mpicoloc_begin("exchange");
        MPI_Barrier(MPI_COMM_WORLD);
        mpicoloc_end("exchange");
        mpicoloc_unit();
    }
    mpicoloc_units(5);
    mpicoloc_end("solve");
    MPI_Pcontrol(1); /* somebody else's level */
    MPI_Finalize();
    return 0;
}
