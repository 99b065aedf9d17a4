/* Co-runners for measurements: one that streams through memory, one that only computes, one that sleeps.

   mpicc -O2 -o co_runners co_runners.c
   mpirun -n 1 ./co_runners hog|spinner|sleeper [seconds] */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HOG_BYTES (256UL << 20)
#define SPINS 20000000

static volatile double sink;

static void stream(double *from, double *to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = 0.5 * from[i] + 1.0;
    sink = to[n / 2];
}

static void spin(void)
{
    double x = 1.0;
    for (int i = 0; i < SPINS; i++)
        x = x * 1.0000001 + 1e-9;
    sink = x;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    const char *name = argc > 1 ? argv[1] : "spinner";
    double end_s = MPI_Wtime() + (argc > 2 ? atof(argv[2]) : 1e9);
    size_t n = HOG_BYTES / 2 / sizeof(double);
    double *a = calloc(n, sizeof(double)), *b = calloc(n, sizeof(double));
    if (a == NULL || b == NULL)
        MPI_Abort(MPI_COMM_WORLD, 2);
    for (int i = 0; MPI_Wtime() < end_s; i++) {
        if (strcmp(name, "hog") == 0)
            stream(i % 2 ? a : b, i % 2 ? b : a, n);
        else if (strcmp(name, "sleeper") == 0)
            usleep(20000);
        else
            spin();
    }
    free(a);
    free(b);
    MPI_Finalize();
    return 0;
}
