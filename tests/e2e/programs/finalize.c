/* Each rank tells how much processor time it used in MPI_Finalize. */
#include "../../mpi/programs/ranks.h"
#include <time.h>

static double used_s(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + (double)used.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    double before_s = used_s();
    MPI_Finalize();
    printf("rank %d used %.6f s\n", rank, used_s() - before_s);
    return 0;
}
