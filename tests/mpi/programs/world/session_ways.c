/* A program that lives in sessions: one, several at once, one after the other, or beside MPI_Init (argv[1]). */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    int size, rank, place, n_self, sum = 0, number;
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
    printf("rank %d: %s group %d place %d self %d infos %d %d sum %d from %d\n", rank, what, size, place, n_self,
           size_in_info(session, "mpi://WORLD"), size_in_info(session, "mpi://SELF"), sum, number);
    fflush(stdout);
    MPI_Group_free(&all);
    MPI_Comm_free(&comm);
    MPI_Group_free(&own);
    MPI_Group_free(&group);
}

static void several_at_once(void)
{
    MPI_Session first = opened(), second = opened();
    work(first, "first");
    work(second, "second");
    closed(first);
    work(second, "second again");
    closed(second);
}

static void in_a_row(void)
{
    for (int i = 0; i < 3; i++) {
        char what[16];
        MPI_Session session = opened();
        snprintf(what, sizeof what, "turn %d", i);
        work(session, what);
        closed(session);
    }
}

static void show_world(void)
{
    int rank, size, sum, one = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("rank %d: world %d sum %d\n", rank, size, sum);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "one";
    MPI_Session session;
    if (strcmp(way, "several") == 0) {
        several_at_once();
        return 0;
    }
    if (strcmp(way, "row") == 0) {
        in_a_row();
        return 0;
    }
    if (strcmp(way, "world-first") == 0)
        MPI_Init(NULL, NULL);
    session = opened();
    if (strcmp(way, "session-first") == 0 || strcmp(way, "session-outside") == 0)
        MPI_Init(NULL, NULL);
    work(session, "one");
    if (strcmp(way, "one") != 0 && strcmp(way, "exit") != 0)
        show_world();
    if (strcmp(way, "exit") == 0)
        exit(6);
    if (strcmp(way, "session-outside") == 0) {
        MPI_Finalize();
        work(session, "outlives");
        closed(session);
        return 0;
    }
    closed(session);
    if (strcmp(way, "one") != 0)
        MPI_Finalize();
    return 0;
}
