/* Point-to-point communication of every kind, each receive asking for more than comes. Ranks are paired 0-1, 2-3;
   an odd one out talks to itself. Truth: `expect_points` in test_volume.py. */
#include "../ranks.h"

static int peer;
static char out[1 << 16], in[1 << 16];
static MPI_Comm comm;

/* Sends of 8 bytes while receiving from the same peer. */
static void give(int tag, int n)
{
    MPI_Request request;
    MPI_Isend(out, n, MPI_CHAR, peer, tag, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void one_by_one(void)
{
    MPI_Request request;
    MPI_Status status;
    int flag = 0, index;
    MPI_Irecv(in, 1000, MPI_CHAR, MPI_ANY_SOURCE, 1, comm, &request);
    give(1, 8);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Irecv(in, 1000, MPI_CHAR, peer, 2, comm, &request);
    give(2, 8);
    while (!flag)
        MPI_Test(&request, &flag, &status);
    MPI_Irecv(in, 1000, MPI_INT, peer, 3, comm, &request);
    give(3, 8);
    MPI_Waitany(1, &request, &index, MPI_STATUS_IGNORE);
    MPI_Irecv(in, 1000, MPI_CHAR, peer, 4, comm, &request);
    give(4, 8);
    for (flag = 0; !flag;)
        MPI_Testany(1, &request, &index, &flag, MPI_STATUS_IGNORE);
    for (flag = 0; !flag;)
        MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE); /* of the null request: at once */
}

enum { N_MANY = 200 };

/* More requests than the stack has room for, in every array call. */
static void many(void)
{
    MPI_Request requests[2 * N_MANY];
    MPI_Status statuses[2 * N_MANY];
    int indices[2 * N_MANY], n_done, n_left, flag;
    for (int way = 0; way < 5; way++) {
        for (int i = 0; i < N_MANY; i++)
            MPI_Irecv(in + i, 100, MPI_CHAR, MPI_ANY_SOURCE, 10 + i, comm, &requests[i]);
        for (int i = 0; i < N_MANY; i++)
            MPI_Isend(out, i % 3, MPI_CHAR, peer, 10 + i, comm, &requests[N_MANY + i]);
        if (way == 0)
            MPI_Waitall(2 * N_MANY, requests, MPI_STATUSES_IGNORE);
        if (way == 1)
            MPI_Waitall(2 * N_MANY, requests, statuses);
        for (flag = 0; way == 2 && !flag;)
            MPI_Testall(2 * N_MANY, requests, &flag, MPI_STATUSES_IGNORE);
        for (n_left = 2 * N_MANY; way == 3 && n_left > 0; n_left -= n_done)
            MPI_Waitsome(2 * N_MANY, requests, &n_done, indices, MPI_STATUSES_IGNORE);
        for (n_left = 2 * N_MANY; way == 4 && n_left > 0; n_left -= n_done)
            MPI_Testsome(2 * N_MANY, requests, &n_done, indices, statuses);
    }
}

static void persistent(void)
{
    MPI_Request requests[4];
    MPI_Send_init(out, 16, MPI_CHAR, peer, 300, comm, &requests[0]);
    MPI_Recv_init(in, 500, MPI_CHAR, MPI_ANY_SOURCE, 300, comm, &requests[1]);
    MPI_Send_init(out, 16, MPI_CHAR, MPI_PROC_NULL, 300, comm, &requests[2]);
    MPI_Recv_init(in, 500, MPI_CHAR, MPI_PROC_NULL, 300, comm, &requests[3]);
    MPI_Wait(&requests[1], MPI_STATUS_IGNORE); /* inactive */
    for (int i = 0; i < 3; i++) {
        MPI_Startall(4, requests);
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE); /* inactive */
    }
    MPI_Start(&requests[1]);
    MPI_Start(&requests[0]);
    MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    for (int i = 0; i < 4; i++)
        MPI_Request_free(&requests[i]);
}

static void matched(void)
{
    MPI_Message message;
    MPI_Request request, sends[3];
    MPI_Status status;
    int flag = 0;
    for (int i = 0; i < 3; i++)
        MPI_Isend(out, 24, MPI_CHAR, peer, 400 + i, comm, &sends[i]);
    MPI_Mprobe(MPI_ANY_SOURCE, 400, comm, &message, MPI_STATUS_IGNORE);
    MPI_Mrecv(in, 700, MPI_CHAR, &message, MPI_STATUS_IGNORE);
    while (!flag)
        MPI_Improbe(MPI_ANY_SOURCE, 401, comm, &flag, &message, &status);
    MPI_Imrecv(in, 700, MPI_CHAR, &message, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Recv(in, 700, MPI_CHAR, MPI_ANY_SOURCE, 402, comm, MPI_STATUS_IGNORE);
    MPI_Waitall(3, sends, MPI_STATUSES_IGNORE);
    MPI_Mprobe(MPI_PROC_NULL, 1, comm, &message, MPI_STATUS_IGNORE);
    MPI_Mrecv(in, 700, MPI_CHAR, &message, MPI_STATUS_IGNORE);
}

static void both_ways(void)
{
    MPI_Datatype strided;
    MPI_Type_vector(4, 1, 2, MPI_INT, &strided);
    MPI_Type_commit(&strided);
    MPI_Sendrecv(out, 2, strided, peer, 500, in, 1000, MPI_INT, peer, 500, comm, MPI_STATUS_IGNORE);
    MPI_Sendrecv_replace(in, 40, MPI_CHAR, peer, 501, MPI_ANY_SOURCE, 501, comm, MPI_STATUS_IGNORE);
    MPI_Sendrecv(out, 9, MPI_CHAR, MPI_PROC_NULL, 1, in, 9, MPI_CHAR, MPI_PROC_NULL, 1, comm, MPI_STATUS_IGNORE);
    MPI_Type_free(&strided);
}

/* A receive that is cancelled, one to nobody, and one that is freed: 0, 0 and what was asked for. */
static void odd_ends(void)
{
    MPI_Request request;
    MPI_Status status;
    int was_cancelled;
    MPI_Irecv(in, 64, MPI_CHAR, peer, 600, comm, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &was_cancelled);
    printf("got cancelled %d\n", was_cancelled);
    MPI_Irecv(in, 64, MPI_CHAR, MPI_PROC_NULL, 601, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Irecv(in, 64, MPI_CHAR, peer, 602, comm, &request);
    MPI_Cancel(&request);
    MPI_Request_free(&request);
    MPI_Irecv(in, 2048, MPI_CHAR, peer, 603, comm, &request);
    MPI_Request_free(&request);
    give(603, 2048);
    MPI_Sendrecv(out, 0, MPI_CHAR, peer, 604, in, 0, MPI_CHAR, peer, 604, comm, MPI_STATUS_IGNORE);
}

/* A message that is longer than the buffer: MPICH fails the receive, Open MPI 4 may cut it in silence. */
static void truncated(void)
{
    MPI_Request requests[2];
    MPI_Status statuses[2];
    memset(statuses, 0, sizeof statuses);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* MPICH asks the world's for Waitall */
    MPI_Irecv(in, 4, MPI_CHAR, peer, 700, comm, &requests[0]);
    MPI_Irecv(in, 4, MPI_CHAR, peer, 701, comm, &requests[1]);
    MPI_Barrier(comm);
    give(700, 32);
    give(701, 2);
    int code = MPI_Waitall(2, requests, statuses), class;
    MPI_Error_class(code, &class);
    printf("got %s\n", class == MPI_ERR_IN_STATUS ? "an error in a status" : "no error");
    MPI_Wait(&requests[1], MPI_STATUS_IGNORE); /* which may have been left pending */
    MPI_Barrier(comm);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    peer = (rank ^ 1) < size ? rank ^ 1 : rank;
    if (argc > 1) { /* the same in a communicator with the ranks turned round */
        MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comm);
        peer = size - 1 - peer;
    } else {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    }
    one_by_one();
    many();
    persistent();
    matched();
    both_ways();
    odd_ends();
    truncated();
    printf("rank %d done\n", rank);
    MPI_Comm_free(&comm);
    MPI_Finalize();
    return 0;
}
