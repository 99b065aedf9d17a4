/* exchange TIMES BYTES US: compute for US microseconds of processor time, then send BYTES to each rank; TIMES times. */
#include <mpi.h>
#include <stdlib.h>
#include <time.h>

static void compute(double us)
{
    clock_t end = clock() + (clock_t)(us * CLOCKS_PER_SEC / 1e6);
    while (clock() < end)
        ;
}

int main(int n_arguments, char *arguments[])
{
    int size;
    MPI_Init(&n_arguments, &arguments);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (n_arguments != 4)
        MPI_Abort(MPI_COMM_WORLD, 2);
    int n_times = atoi(arguments[1]), n_bytes = atoi(arguments[2]);
    char *out = calloc((size_t)size, (size_t)n_bytes), *in = calloc((size_t)size, (size_t)n_bytes);
    for (int i = 0; i < n_times; i++) {
        compute(atof(arguments[3]));
        MPI_Alltoall(out, n_bytes, MPI_BYTE, in, n_bytes, MPI_BYTE, MPI_COMM_WORLD);
    }
    free(out);
    free(in);
    MPI_Finalize();
    return 0;
}
