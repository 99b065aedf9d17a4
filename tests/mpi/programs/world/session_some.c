/* Ranks that use sessions in different ways (argv[1]). */
#include "../ranks.h"
#include <unistd.h>

static int place(void)
{
    const char *text = getenv("OMPI_COMM_WORLD_RANK") ? getenv("OMPI_COMM_WORLD_RANK") : getenv("PMI_RANK");
    return text != NULL ? atoi(text) : 0;
}

/* Work with the first n processes of a set, with all of them if n is 0. */
static void work(MPI_Session session, const char *set, int n)
{
    int ranks[16], one = 1, sum = 0;
    MPI_Group all, some;
    MPI_Comm comm;
    MPI_Group_from_session_pset(session, set, &all);
    if (n == 0)
        MPI_Group_size(all, &n);
    for (int i = 0; i < n; i++)
        ranks[i] = i;
    MPI_Group_incl(all, n, ranks, &some);
    MPI_Comm_create_from_group(some, "work", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    say("%d of %s", sum, set);
    MPI_Comm_free(&comm);
    MPI_Group_free(&some);
    MPI_Group_free(&all);
}

static void in_world(void)
{
    int one = 1, sum = 0;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    say("%d of the world", sum);
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "";
    rank = place();
    int is_first = rank == 0;
    MPI_Session session = MPI_SESSION_NULL;
    if (is(way, "before-init") || is(way, "after-init")) {
        if (is_first && way[0] == 'b')
            MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
        MPI_Init(NULL, NULL);
        if (is_first && way[0] == 'a')
            MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
        if (is_first) {
            work(session, "mpi://SELF", 0);
            MPI_Session_finalize(&session);
        }
        in_world();
        MPI_Finalize();
        return 0;
    }
    if (is(way, "late") && !is_first)
        usleep(500000);
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    if (is(way, "late"))
        work(session, "mpi://SELF", 0);
    if (is(way, "together-late") && is_first)
        work(session, "mpi://SELF", 0);
    if (is(way, "two") && rank < 2)
        work(session, "mpi://WORLD", 2);
    if (is(way, "together-late"))
        work(session, "mpi://WORLD", 0);
    MPI_Session_finalize(&session);
    return 0;
}
