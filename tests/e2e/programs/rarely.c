/* A rank that computes for SECONDS between MPI_Init and MPI_Finalize and calls MPI never else. It prints its own rate:
   steps per second of processor time and of wall time. Shapes: what of it is a function. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N = 600000 }; /* thousands of steps a second would be too many to count, on the quickest processors too */

static double field[N];

#if defined INLINED
#define SHAPE static inline __attribute__((always_inline))
#else
#define SHAPE static __attribute__((noinline))
#endif

static __attribute__((noinline)) double leaf(double x)
{
    __asm__ volatile("");
    return x * 1.0000001 + 1e-9;
}

SHAPE double smooth(double *f, int n)
{
    double sum = 0.0;
    for (int i = 0; i < n; i++) {
        f[i] = leaf(f[i]);
        sum += f[i];
    }
    return sum;
}

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* One function that runs all the time, without a call in it. */
static __attribute__((noinline)) double endless(long n_sweeps)
{
    double sum = 0.0;
    for (long k = 0; k < n_sweeps; k++)
        for (int i = 0; i < N; i++)
            sum += field[i] = field[i] * 1.0000001 + 1e-9;
    return sum;
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 1.0, sum = 0.0;
    long n_steps = 0;
    MPI_Init(&argc, &argv);
    double t0 = now(CLOCK_MONOTONIC), cpu0 = now(CLOCK_PROCESS_CPUTIME_ID);
    if (argc > 2 && strcmp(argv[2], "endless") == 0) {
        enum { N_PROBE = 100 };
        sum = endless(N_PROBE);
        sum += endless((long)(seconds * N_PROBE / (now(CLOCK_PROCESS_CPUTIME_ID) - cpu0)));
    } else {
        while (now(CLOCK_MONOTONIC) < t0 + seconds) {
            sum += smooth(field, N);
            n_steps++;
        }
    }
    double wall = now(CLOCK_MONOTONIC) - t0, cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu0;
    MPI_Finalize();
    printf("steps %ld wall %.4f cpu %.4f sum %g\n", n_steps, wall, cpu, sum);
    return 0;
}
