/* A job that computes for argv[2] seconds, or until there is a file argv[4], with naps of argv[3] us, and then ends as
   argv[1] says. */
#include "../../mpi/programs/ranks.h"
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
    const char *end = argc > 1 ? argv[1] : "finalize";
    if (is(end, "no-mpi"))
        return 5;
    begin(&argc, &argv);
    compute(argc > 2 ? atof(argv[2]) : 1.0, argc > 3 ? (unsigned)atoi(argv[3]) : 0, argc > 4 ? argv[4] : NULL);
    if (rank == 0) {
        printf("computed with %d ranks\n", size);
        fflush(stdout);
    }
    if (is(end, "abort") && rank == 0)
        MPI_Abort(MPI_COMM_WORLD, 3);
    if (is(end, "abort"))
        pause();
    if (is(end, "exit"))
        exit(6);
    MPI_Finalize();
    return is(end, "seven") ? 7 : 0;
}
