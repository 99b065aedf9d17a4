/* Receives that end in tests of each kind, at sites that are timed by sampling by then; prints what was received.

       polls completions | jump */
#include "../ranks.h"

#include <setjmp.h>

enum { N_TURNS = 600, N_AT_ONCE = 4, N_BYTES = 5, N_POLLS = 1000 };

static MPI_Request requests[N_AT_ONCE];
static char buffers[N_AT_ONCE][16];

static void post(void)
{
    for (int i = 0; i < N_AT_ONCE; i++)
        MPI_Irecv(buffers[i], 16, MPI_BYTE, rank, i, MPI_COMM_WORLD, &requests[i]);
    for (int i = 0; i < N_AT_ONCE; i++)
        MPI_Send("12345", N_BYTES, MPI_BYTE, rank, i, MPI_COMM_WORLD);
}

static void end_with_test(void)
{
    for (int i = 0, flag = 0; i < N_AT_ONCE; i += flag)
        MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE);
}

static void end_with_testall(MPI_Status *statuses)
{
    for (int flag = 0; !flag;)
        MPI_Testall(N_AT_ONCE, requests, &flag, statuses);
}

static void end_with_testany(void)
{
    for (int n = 0, flag = 0, index; n < N_AT_ONCE; n += flag)
        MPI_Testany(N_AT_ONCE, requests, &index, &flag, MPI_STATUS_IGNORE);
}

static void end_with_testsome(MPI_Status *statuses)
{
    int indices[N_AT_ONCE];
    for (int left = N_AT_ONCE, n = 0; left; left -= n)
        MPI_Testsome(N_AT_ONCE, requests, &n, indices, statuses);
}

static void test_none(void)
{
    int flag, index, n;
    MPI_Request none = MPI_REQUEST_NULL;
    MPI_Status status;
    MPI_Testall(0, requests, &flag, MPI_STATUSES_IGNORE);
    MPI_Testany(0, requests, &index, &flag, &status);
    MPI_Testsome(0, requests, &n, &index, &status);
    MPI_Test(&none, &flag, MPI_STATUS_IGNORE);
}

static void complete(void)
{
    MPI_Status statuses[N_AT_ONCE];
    for (int i = 0; i < N_TURNS; i++) {
        post();
        if (i % 6 == 0)
            end_with_test();
        else if (i % 6 == 1)
            end_with_testany();
        else if (i % 6 < 4)
            end_with_testall(i % 6 == 2 ? MPI_STATUSES_IGNORE : statuses);
        else
            end_with_testsome(i % 6 == 4 ? MPI_STATUSES_IGNORE : statuses);
        test_none();
    }
    say("messages %d bytes %d", N_TURNS * N_AT_ONCE, N_TURNS * N_AT_ONCE * N_BYTES);
}

static jmp_buf before;

static void leave(MPI_Comm *comm, int *error, ...)
{
    (void)comm;
    (void)error;
    longjmp(before, 1);
}

/* One of the tests fails, and its error handler does not come back. */
static void jump(void)
{
    MPI_Errhandler handler;
    static volatile int n_polls, n_jumps;
    int flag = 0;
    char small, large[8] = "1234567";
    MPI_Request request;
    MPI_Comm_create_errhandler(leave, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    MPI_Irecv(&small, 1, MPI_BYTE, rank, 1, MPI_COMM_WORLD, &request);
    if (setjmp(before))
        n_jumps++;
    for (; n_polls < N_POLLS && !n_jumps; n_polls++) {
        if (n_polls == N_POLLS - 1)
            MPI_Send(large, sizeof large, MPI_BYTE, rank, 1, MPI_COMM_WORLD);
        MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    }
    MPI_Irecv(buffers[0], 16, MPI_BYTE, rank, 2, MPI_COMM_WORLD, &request);
    for (int i = 0; i < N_POLLS; i++)
        MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    MPI_Send("12345", N_BYTES, MPI_BYTE, rank, 2, MPI_COMM_WORLD);
    for (flag = 0; !flag;)
        MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    say("jumped");
    MPI_Errhandler_free(&handler);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    if (argc > 1 && is(argv[1], "jump"))
        jump();
    else
        complete();
    MPI_Finalize();
    return 0;
}
