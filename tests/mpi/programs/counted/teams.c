/* OpenMP: threads that meet at barriers, take chunks by turns, and make teams of their own. */
#include "hot.h"

#include <mpi.h>
#include <omp.h>
#include <stdio.h>

enum { N = 20000 };

static uint64_t field[N];

int main(int argc, char **argv)
{
    uint64_t sum = 0;
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    for (int round = 0; round < 700; round++) {
#pragma omp parallel for schedule(dynamic, 16) num_threads(3)
        for (int i = 0; i < N; i++)
            field[i] = scramble(field[i] + (uint64_t)i, 20 + i % 11) ^ 0x6b43a9b5u;
#pragma omp parallel for reduction(^ : sum) num_threads(1 + round % 5)
        for (int i = 0; i < N; i++)
            sum ^= field[i] * 0x2c1b3c6du + (uint64_t)round;
#pragma omp parallel num_threads(2)
        for (int i = 0; i < 20; i++) {
#pragma omp single
            sum = scramble(sum, 500);
#pragma omp critical
            sum += 0x01010101u;
#pragma omp barrier
        }
    }
    printf("sum %llu\n", (unsigned long long)sum);
    MPI_Finalize();
    return 0;
}
