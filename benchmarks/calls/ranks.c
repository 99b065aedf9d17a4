/* A lattice code that asks for its rank at every site, as MILC does: about 3 million MPI_Comm_rank a second and
   rank, and an exchange of borders after each sweep.

       ranks N_SWEEPS */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>

enum { N_SITES = 8192, N_FLOPS = 68, N_BORDER = 512 };

static double site[N_SITES][4], border[N_BORDER];

/* About 300 ns of work for the rank whose site it is. */
static void update(double *s, int me)
{
    for (int k = 0; k < N_FLOPS; k++)
        for (int c = 0; c < 4; c++)
            s[c] = s[c] * 0.999 + 1e-3 * (me + c);
}

int main(int argc, char **argv)
{
    int me, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    int next = (me + 1) % size, previous = (me + size - 1) % size;
    long n_sweeps = argc > 1 ? atol(argv[1]) : 100;
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime(), sum = 0;
    for (long i = 0; i < n_sweeps; i++) {
        for (int j = 0; j < N_SITES; j++) {
            MPI_Comm_rank(MPI_COMM_WORLD, &me);
            update(site[j], me);
        }
        MPI_Sendrecv(site, N_BORDER, MPI_DOUBLE, next, 0, border, N_BORDER, MPI_DOUBLE, previous, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        sum += border[0];
    }
    double took = MPI_Wtime() - begin;
    if (me == 0)
        printf("loop_s %.6f sum %.6g\n", took, sum);
    MPI_Finalize();
    return 0;
}
