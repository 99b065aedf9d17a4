/* A program that tells mpicoloc what its unit of work is, and which parts it has.
 *
 *     mpicc -O2 -I$(mpicoloc preload --include) -o units examples/units.c
 *     mpicoloc run -n 2 -- ./units 200
 *
 * It also runs without mpicoloc: the calls are the standard MPI_Pcontrol. */
#include "mpicoloc_app.h"

#include <stdio.h>
#include <stdlib.h>

enum { N = 200000 };

static double work(double *field)
{
    double sum = 0.0;
    for (int i = 1; i < N - 1; i++) {
        field[i] = 0.25 * (field[i - 1] + 2.0 * field[i] + field[i + 1]);
        sum += field[i];
    }
    return sum;
}

int main(int argc, char **argv)
{
    int rank, n_steps = argc > 1 ? atoi(argv[1]) : 1000;
    double sum = 0.0, total = 0.0, *field = calloc(N, sizeof *field);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    field[N / 2] = 1.0;
    for (int i = 0; i < n_steps; i++) {
        mpicoloc_begin("smooth");
        sum = work(field);
        mpicoloc_end("smooth");
        mpicoloc_begin("reduce");
        MPI_Allreduce(&sum, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        mpicoloc_end("reduce");
        mpicoloc_unit();
    }
    if (rank == 0)
        printf("total %.6f after %d steps\n", total, n_steps);
    free(field);
    MPI_Finalize();
    return 0;
}
