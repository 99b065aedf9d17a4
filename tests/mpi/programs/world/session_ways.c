/* A program that lives in sessions: one, several at once, one after the other, or beside MPI_Init (argv[1]). */
#include "../ranks.h"

static MPI_Session opened(void)
{
    MPI_Session session;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    return session;
}

static void closed(MPI_Session session)
{
    MPI_Session_finalize(&session);
}

static int size_in_info(MPI_Session session, const char *pset)
{
#ifdef OPEN_MPI /* fails in 5.0 for every pset, with and without the shim */
    (void)session, (void)pset;
    return -1;
#else
    MPI_Info info;
    char text[32] = "-1";
    int flag = 0;
    MPI_Session_get_pset_info(session, pset, &info);
    MPI_Info_get(info, "mpi_size", sizeof text - 1, text, &flag);
    MPI_Info_free(&info);
    return flag ? atoi(text) : -1;
#endif
}

/* What a session shows of the job, and work on a communicator made of its processes. */
static void work(MPI_Session session, const char *what)
{
    MPI_Group group, own, all;
    MPI_Comm comm;
    int place, n_self, sum = 0, number;
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Group_from_session_pset(session, "mpi://SELF", &own);
    MPI_Group_size(group, &size);
    MPI_Group_rank(group, &place);
    MPI_Group_size(own, &n_self);
    MPI_Comm_create_from_group(group, what, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_group(comm, &all);
    number = rank + 1;
    for (int i = 0; i < 10; i++)
        MPI_Allreduce(&number, &sum, 1, MPI_INT, MPI_SUM, comm);
    MPI_Sendrecv_replace(&number, 1, MPI_INT, (rank + 1) % size, 0, (rank + size - 1) % size, 0, comm,
                         MPI_STATUS_IGNORE);
    say("%s group %d place %d self %d infos %d %d sum %d from %d", what, size, place, n_self,
        size_in_info(session, "mpi://WORLD"), size_in_info(session, "mpi://SELF"), sum, number);
    MPI_Group_free(&all);
    MPI_Comm_free(&comm);
    MPI_Group_free(&own);
    MPI_Group_free(&group);
}

static int several_at_once(void)
{
    MPI_Session first = opened(), second = opened();
    work(first, "first");
    work(second, "second");
    closed(first);
    work(second, "second again");
    closed(second);
    return 0;
}

static int in_a_row(void)
{
    for (int i = 0; i < 3; i++) {
        char what[16];
        MPI_Session session = opened();
        snprintf(what, sizeof what, "turn %d", i);
        work(session, what);
        closed(session);
    }
    return 0;
}

static void show_world(void)
{
    int sum, one = 1;
    find_place();
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    say("world %d sum %d", size, sum);
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "one";
    MPI_Session session;
    if (is(way, "several"))
        return several_at_once();
    if (is(way, "row"))
        return in_a_row();
    if (is(way, "world-first"))
        MPI_Init(NULL, NULL);
    session = opened();
    if (is(way, "session-first") || is(way, "session-outside"))
        MPI_Init(NULL, NULL);
    work(session, "one");
    if (!is(way, "one"))
        show_world();
    if (is(way, "session-outside")) {
        MPI_Finalize();
        work(session, "outlives");
        closed(session);
        return 0;
    }
    closed(session);
    if (!is(way, "one"))
        MPI_Finalize();
    return 0;
}
