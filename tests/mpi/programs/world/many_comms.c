/* Many communicators: `turns N` makes, uses and frees one after another; `alive N` keeps N at a time, or as many as the
   library can make, and uses all of them twice. Seconds and memory go to standard error. */
#include "../ranks.h"
#include <sys/resource.h>

static long use(MPI_Comm comm, int i)
{
    int own, n, mine = rank + i, all = 0, from = 0;
    MPI_Comm_rank(comm, &own);
    MPI_Comm_size(comm, &n);
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, comm);
    MPI_Sendrecv(&mine, 1, MPI_INT, (own + 1) % n, i % 100, &from, 1, MPI_INT, (own + n - 1) % n, i % 100, comm,
                 MPI_STATUS_IGNORE);
    return all + from;
}

static MPI_Comm make(int i)
{
    MPI_Comm comm = MPI_COMM_NULL;
    int status = i % 2 == 0 ? MPI_Comm_dup(MPI_COMM_WORLD, &comm)
                            : MPI_Comm_split(MPI_COMM_WORLD, rank % 2, (i / 2) % 2 ? -rank : rank, &comm);
    return status == MPI_SUCCESS ? comm : MPI_COMM_NULL;
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int n = argc > 2 ? atoi(argv[2]) : 10000, is_alive = argc > 1 && is(argv[1], "alive"), n_made = 0;
    long sum = 0;
    MPI_Comm *comms = calloc((size_t)n, sizeof *comms);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    double begin_s = MPI_Wtime();
    for (int i = 0; i < n; i++, n_made++) {
        comms[i] = make(i);
        int is_made = comms[i] != MPI_COMM_NULL, are_made = 0;
        MPI_Allreduce(&is_made, &are_made, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        if (!are_made)
            break;
        sum += use(comms[i], i);
        if (!is_alive)
            MPI_Comm_free(&comms[i]);
    }
    for (int i = 0; is_alive && i < n_made; i++)
        sum += use(comms[i], i);
    for (int i = 0; is_alive && i < n_made; i++)
        MPI_Comm_free(&comms[i]);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    fprintf(stderr, "measured %d %.3f s %ld KiB\n", rank, MPI_Wtime() - begin_s, usage.ru_maxrss);
    say("%d made, %ld", n_made, sum);
    free(comms);
    MPI_Finalize();
    return 0;
}
