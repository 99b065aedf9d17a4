/* One-sided communication, files, neighbours and communicators that come and go. Truth: test_volume.py. */
#include "../ranks.h"

static int next, previous;

/* To the next rank of the world: 3 puts, 2 gets, 2 accumulates, and each way of both. The window's ranks are
   reversed. */
static void one_sided(void)
{
    MPI_Comm reversed;
    MPI_Win win;
    MPI_Request request;
    int out[32] = {0}, in[32], target = size - 1 - next, *base;
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
    MPI_Win_allocate(32 * sizeof(int), sizeof(int), MPI_INFO_NULL, reversed, &base, &win);
    MPI_Win_lock_all(0, win);
    MPI_Put(out, 4, MPI_INT, target, 0, 4, MPI_INT, win);
    MPI_Put(out, 4, MPI_INT, target, 0, 4, MPI_INT, win);
    MPI_Rput(out, 4, MPI_INT, target, 0, 4, MPI_INT, win, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Put(out, 4, MPI_INT, MPI_PROC_NULL, 0, 4, MPI_INT, win);
    MPI_Get(in, 8, MPI_INT, target, 0, 8, MPI_INT, win);
    MPI_Rget(in, 8, MPI_INT, target, 0, 8, MPI_INT, win, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Accumulate(out, 16, MPI_INT, target, 0, 16, MPI_INT, MPI_SUM, win);
    MPI_Raccumulate(out, 16, MPI_INT, target, 0, 16, MPI_INT, MPI_SUM, win, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Get_accumulate(out, 32, MPI_INT, in, 32, MPI_INT, target, 0, 32, MPI_INT, MPI_SUM, win);
    MPI_Get_accumulate(NULL, 0, MPI_INT, in, 32, MPI_INT, target, 0, 32, MPI_INT, MPI_NO_OP, win);
    MPI_Fetch_and_op(out, in, MPI_INT, target, 0, MPI_SUM, win);
    MPI_Compare_and_swap(out, out, in, MPI_INT, target, 0, win);
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
    MPI_Comm_free(&reversed);
}

/* All in one size class: one message and two puts to the next rank, three gets from it, and a value each way. */
static void both_ways(void)
{
    MPI_Win win;
    int out[32] = {0}, in[32], *base;
    MPI_Win_allocate(32 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    MPI_Win_fence(0, win);
    for (int i = 0; i < 2; i++)
        MPI_Put(out, 25, MPI_INT, next, 0, 25, MPI_INT, win);
    MPI_Win_fence(0, win);
    for (int i = 0; i < 3; i++)
        MPI_Get(in, 20, MPI_INT, next, 0, 20, MPI_INT, win);
    MPI_Win_fence(0, win);
    MPI_Get_accumulate(out, 16, MPI_INT, in, 16, MPI_INT, next, 0, 16, MPI_INT, MPI_SUM, win);
    MPI_Win_fence(0, win);
    MPI_Sendrecv(out, 30, MPI_INT, next, 0, in, 30, MPI_INT, (rank + size - 1) % size, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Win_free(&win);
}

/* Each way of writing 100 bytes, then of reading what is there, asking for more. */
static void files(const char *path)
{
    MPI_File file;
    MPI_Status status;
    MPI_Request request;
    char out[100] = {0}, in[1000];
    MPI_Offset at = 1000 * rank, end = 1000 * size - 900;
    MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    MPI_File_write_at(file, at, out, 100, MPI_CHAR, MPI_STATUS_IGNORE);
    MPI_File_write_at_all(file, at, out, 25, MPI_INT, &status);
    MPI_File_iwrite_at(file, at, out, 100, MPI_CHAR, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_File_write_at_all_begin(file, at, out, 100, MPI_CHAR);
    MPI_File_write_at_all_end(file, out, MPI_STATUS_IGNORE);
    MPI_File_seek(file, at, MPI_SEEK_SET);
    MPI_File_write(file, out, 100, MPI_CHAR, MPI_STATUS_IGNORE);
    MPI_File_seek(file, at, MPI_SEEK_SET);
    MPI_File_write_all(file, out, 100, MPI_CHAR, MPI_STATUS_IGNORE);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    /* the file ends 100 bytes behind the last rank's place: 30 are left of the 1,000 asked for.
       ROMIO reports collective and nonblocking reads as whole, so these ask for what there is */
    MPI_File_read_at(file, end - 30, in, 1000, MPI_CHAR, MPI_STATUS_IGNORE);
    MPI_File_read_at_all(file, end - 30, in, 30, MPI_CHAR, MPI_STATUS_IGNORE);
    MPI_File_iread_at(file, end - 30, in, 30, MPI_CHAR, &request);
    MPI_Wait(&request, &status);
    MPI_File_read_at_all_begin(file, end - 30, in, 30, MPI_CHAR);
    MPI_File_read_at_all_end(file, in, &status);
    MPI_File_seek(file, end - 30, MPI_SEEK_SET);
    MPI_File_read(file, in, 1000, MPI_CHAR, MPI_STATUS_IGNORE);
    MPI_File_close(&file);
}

/* A line of ranks: those at its ends have one neighbour that is not there. */
static void neighbours(void)
{
    MPI_Comm line;
    int periods = 0, counts[2] = {3, 3}, displs[2] = {0, 3}, out[6] = {0}, in[6];
    MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &periods, 0, &line);
    MPI_Neighbor_alltoall(out, 3, MPI_INT, in, 3, MPI_INT, line);
    MPI_Neighbor_alltoallv(out, counts, displs, MPI_INT, in, counts, displs, MPI_INT, line);
    MPI_Neighbor_allgather(out, 3, MPI_INT, in, 3, MPI_INT, line);
    MPI_Comm_free(&line);
}

/* More communicators than would ever be remembered, their handles used again for others with other ranks. */
static void coming_and_going(void)
{
    char out = 0, in[2];
    MPI_Request late;
    for (int i = 0; i < 200; i++) {
        MPI_Comm comm;
        MPI_Comm_split(MPI_COMM_WORLD, 0, i % 2 ? -rank : rank, &comm);
        int to = i % 2 ? size - 1 - next : next, from = i % 2 ? size - 1 - previous : previous;
        MPI_Irecv(in, 2, MPI_CHAR, i % 3 ? from : MPI_ANY_SOURCE, 1, comm, &late);
        MPI_Send(&out, 1, MPI_CHAR, to, 1, comm);
        if (i % 4 == 0)
            MPI_Wait(&late, MPI_STATUS_IGNORE);
        MPI_Comm_free(&comm); /* receives may end afterwards */
        if (i % 4)
            MPI_Wait(&late, MPI_STATUS_IGNORE);
    }
}

/* The remote group's ranks are those of the messages. */
static void between_groups(void)
{
    MPI_Comm half, inter;
    int in[8], out = rank;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 7, &inter);
    if (rank < 2) {
        MPI_Request request;
        MPI_Irecv(in, 8, MPI_INT, MPI_ANY_SOURCE, 8, inter, &request);
        MPI_Send(&out, 1, MPI_INT, 0, 8, inter);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Comm_disconnect(&inter);
    MPI_Comm_free(&half);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    next = (rank + 1) % size;
    previous = (rank + size - 1) % size;
    if (is(argv[1], "one_sided"))
        one_sided();
    if (is(argv[1], "both_ways"))
        both_ways();
    if (is(argv[1], "files"))
        files(argv[2]);
    if (is(argv[1], "neighbours"))
        neighbours();
    if (is(argv[1], "communicators"))
        coming_and_going();
    if (is(argv[1], "groups"))
        between_groups();
    printf("rank %d done\n", rank);
    MPI_Finalize();
    return 0;
}
