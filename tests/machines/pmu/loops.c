/* Runs loops of known length between MPI calls: loops SECONDS N_LOOPS FILE. One round is N_LOOPS times two instructions
   of rank 0; the other ranks wait for it in MPI. FILE has begin and end of each round, CLOCK_MONOTONIC. */
#include <inttypes.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { N_ROUNDS_MAX = 1000000 };
static uint64_t times[2 * N_ROUNDS_MAX];

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void count_down(uint64_t n)
{
    __asm__ volatile("1: subs %0, %0, #1\n   b.ne 1b" : "+r"(n)::"cc");
}

static int save(const char *path, size_t n_rounds)
{
    FILE *file = fopen(path, "w");
    size_t n = file ? fwrite(times, 2 * sizeof *times, n_rounds, file) : 0;
    return file && fclose(file) == 0 && n == n_rounds;
}

int main(int argc, char **argv)
{
    int rank, goes_on = 1, ok = 1;
    size_t n = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    uint64_t n_loops = strtoull(argv[2], NULL, 10), end = now_ns() + strtoull(argv[1], NULL, 10) * 1000000000u;
    while (goes_on) {
        if (rank == 0) {
            times[2 * n] = now_ns();
            count_down(n_loops);
            times[2 * n + 1] = now_ns();
            n++;
            goes_on = times[2 * n - 1] < end && n < N_ROUNDS_MAX;
        }
        MPI_Bcast(&goes_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    if (rank == 0)
        ok = save(argv[3], n);
    return !ok;
}
