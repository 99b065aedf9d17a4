/* A job that computes for argv[2] seconds, or until there is a file argv[4], with naps of argv[3] us, and then ends as
   argv[1] says. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void compute(double seconds, unsigned nap_us, const char *end_file)
{
    double t0 = MPI_Wtime(), x = 1.0, sum;
    for (int stop = 0; !stop;) {
        for (int i = 0; i < 100000; i++)
            x = x * 1.0000001 + 1e-9;
        if (nap_us)
            usleep(nap_us);
        int late = MPI_Wtime() - t0 > seconds || (end_file && access(end_file, F_OK) == 0);
        MPI_Allreduce(&x, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        MPI_Allreduce(&late, &stop, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    int rank, size;
    const char *end = argc > 1 ? argv[1] : "finalize";
    if (strcmp(end, "no-mpi") == 0)
        return 5;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    compute(argc > 2 ? atof(argv[2]) : 1.0, argc > 3 ? (unsigned)atoi(argv[3]) : 0, argc > 4 ? argv[4] : NULL);
    if (rank == 0) {
        printf("computed with %d ranks\n", size);
        fflush(stdout);
    }
    if (strcmp(end, "abort") == 0 && rank == 0)
        MPI_Abort(MPI_COMM_WORLD, 3);
    if (strcmp(end, "abort") == 0)
        pause();
    if (strcmp(end, "exit") == 0)
        exit(6);
    MPI_Finalize();
    return strcmp(end, "seven") == 0 ? 7 : 0;
}
