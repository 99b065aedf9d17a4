/* Two ranks that depend on each other in one of three ways: coupled STYLE STEPS WORK0 WORK1.
   tight: they meet in each step; loose: at the end only; shared: they take steps from one heap. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 512 };

static double field[N];

static void work(int n)
{
    for (int i = 0; i < n; i++)
        for (int j = 1; j < N - 1; j++)
            field[j] = 0.25 * (field[j - 1] + 2.0 * field[j] + field[j + 1]);
}

/* A message to oneself ends a burst, and nobody waits for it. */
static void step(MPI_Comm comm, int n)
{
    int out = 1, in;
    work(n);
    if (comm != MPI_COMM_NULL)
        MPI_Allreduce(&out, &in, 1, MPI_INT, MPI_SUM, comm);
    else
        MPI_Sendrecv(&out, 1, MPI_INT, 0, 0, &in, 1, MPI_INT, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
}

static void take_steps(int rank, int n_steps, int n_work)
{
    int *heap, taken = 0, one = 1;
    MPI_Win window;
    MPI_Win_allocate(rank == 0 ? sizeof *heap : 0, sizeof *heap, MPI_INFO_NULL, MPI_COMM_WORLD, &heap, &window);
    if (rank == 0)
        *heap = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, window);
    while (taken < n_steps) {
        MPI_Fetch_and_op(&one, &taken, MPI_INT, 0, 0, MPI_SUM, window);
        MPI_Win_flush(0, window);
        work(n_work);
    }
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 5 && rank == 0)
        fprintf(stderr, "usage: coupled tight|loose|shared STEPS WORK0 WORK1\n");
    if (argc != 5)
        MPI_Abort(MPI_COMM_WORLD, 2);
    int n_steps = atoi(argv[2]), n_work = atoi(argv[3 + (rank > 0)]);
    MPI_Comm comm = strcmp(argv[1], "tight") == 0 ? MPI_COMM_WORLD : MPI_COMM_NULL;
    for (int j = 0; j < N; j++)
        field[j] = j;
    double begin_s = MPI_Wtime();
    if (strcmp(argv[1], "shared") == 0)
        take_steps(rank, n_steps, n_work);
    for (int i = 0; i < n_steps && strcmp(argv[1], "shared") != 0; i++)
        step(comm, n_work);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("loop_s %.4f, %g\n", MPI_Wtime() - begin_s, field[N / 2]);
    MPI_Finalize();
    return 0;
}
