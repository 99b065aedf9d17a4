/* Random updates of a table in memory with an unsuccessful MPI_Testany after each, as HPCC's MPI RandomAccess makes them:
   millions a second, of a program that waits for memory.

       updates N_UPDATES */
#include <mpi.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { N_TABLE = 1 << 21, N_BUCKETS = 1 << 10, TAG = 7 };
static const uint64_t POLYNOMIAL = 7;

static uint64_t table[N_TABLE], bucket[N_BUCKETS];

int main(int argc, char **argv)
{
    int me, size, index, flag = 0, told = 0, signal = 1;
    MPI_Status status;
    MPI_Request receive;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Irecv(&told, 1, MPI_INT, (me + size - 1) % size, TAG, MPI_COMM_WORLD, &receive);
    long n = argc > 1 ? atol(argv[1]) : 1000000;
    uint64_t at = 1234567 + (uint64_t)me;
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (long i = 0; i < n && !flag; i++) {
        MPI_Testany(1, &receive, &index, &flag, &status);
        at = (at << 1) ^ ((int64_t)at < 0 ? POLYNOMIAL : 0);
        bucket[at % N_BUCKETS] = at;
        table[at % N_TABLE] ^= at;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double took = MPI_Wtime() - begin;
    MPI_Send(&signal, 1, MPI_INT, (me + 1) % size, TAG, MPI_COMM_WORLD);
    MPI_Wait(&receive, MPI_STATUS_IGNORE);
    if (me == 0)
        printf("loop_s %.6f last %llx\n", took, (unsigned long long)at);
    MPI_Finalize();
    return told != signal;
}
