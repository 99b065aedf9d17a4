/* Everything that can show which world a program lives in. */
#include "../ranks.h"

static void show_group(const char *what, MPI_Group group)
{
    int n;
    MPI_Group_size(group, &n);
    say("%s %d", what, n);
    MPI_Group_free(&group);
}

static void show_comm(const char *what, MPI_Comm comm)
{
    int n, r;
    MPI_Comm_size(comm, &n);
    MPI_Comm_rank(comm, &r);
    say("%s %d of %d", what, r, n);
}

static void communicators(void)
{
    MPI_Comm made;
    MPI_Group group;
    int equal, length;
    char name[MPI_MAX_OBJECT_NAME];
    MPI_Comm_group(MPI_COMM_WORLD, &group);
    MPI_Comm_create(MPI_COMM_WORLD, group, &made);
    show_comm("create", made);
    show_group("group", group);
    MPI_Comm_free(&made);
    MPI_Comm_dup(MPI_COMM_WORLD, &made);
    show_comm("dup", made);
    MPI_Comm_compare(MPI_COMM_WORLD, made, &equal);
    say("congruent %d", equal == MPI_CONGRUENT);
    MPI_Comm_compare(MPI_COMM_WORLD, MPI_COMM_WORLD, &equal);
    say("identical %d", equal == MPI_IDENT);
    MPI_Comm_free(&made);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &made);
    show_comm("split", made);
    MPI_Comm_free(&made);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &made);
    show_comm("node", made);
    MPI_Comm_free(&made);
    MPI_Comm_get_name(MPI_COMM_WORLD, name, &length);
    say("name %s", name);
}

static void topologies(void)
{
    int dims[1] = {0}, periods[1] = {1};
    MPI_Comm cart;
    double gives[2] = {rank, rank}, takes[2];
    MPI_Dims_create(size, 1, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &cart);
    MPI_Neighbor_alltoall(gives, 1, MPI_DOUBLE, takes, 1, MPI_DOUBLE, cart);
    say("neighbours %g %g", takes[0], takes[1]);
    MPI_Comm_free(&cart);
}

static void windows_and_files(const char *path)
{
    int base = -1, value = rank + 10, one;
    MPI_Win win;
    MPI_Group group;
    MPI_File file;
    MPI_Offset bytes;
    MPI_Win_create(&base, sizeof base, sizeof base, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_fence(0, win);
#ifdef OPEN_MPI
    MPI_Put(&value, 1, MPI_INT, (rank + 1) % size, 0, 1, MPI_INT, win);
#else /* Debian's MPICH 4.0.2 puts all into rank 0, with and without the shim */
    base = value;
#endif
    MPI_Win_fence(0, win);
    say("window %d", base);
    MPI_Win_get_group(win, &group);
    show_group("window group", group);
    MPI_Win_free(&win);
    MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL,
                  &file);
    one = 1;
    MPI_File_write_at_all(file, (MPI_Offset)rank * 4, &one, 1, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_get_size(file, &bytes);
    say("file %d", (int)bytes == 4 * size);
    MPI_File_close(&file);
}

static void attributes(void)
{
    static int mine = 42;
    int keys[] = {MPI_TAG_UB, MPI_IO, MPI_WTIME_IS_GLOBAL}, keyval, flag;
    void *value;
    for (int i = 0; i < 3; i++) {
        MPI_Comm_get_attr(MPI_COMM_WORLD, keys[i], &value, &flag);
        say("attribute %d", flag);
    }
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &keyval, NULL);
    MPI_Comm_set_attr(MPI_COMM_WORLD, keyval, &mine);
    MPI_Comm_get_attr(MPI_COMM_WORLD, keyval, &value, &flag);
    say("own attribute %d %d", flag, flag ? *(int *)value : 0);
    MPI_Comm_delete_attr(MPI_COMM_WORLD, keyval);
    MPI_Comm_free_keyval(&keyval);
}

static void between_groups(void)
{
    MPI_Comm half, inter, merged;
    int n, value = rank;
    MPI_Comm_split(MPI_COMM_WORLD, rank > 0, 0, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank > 0 ? 0 : 1, 9, &inter);
    MPI_Comm_remote_size(inter, &n);
    say("remote %d", n);
    MPI_Bcast(&value, 1, MPI_INT, rank == 0 ? MPI_ROOT : 0, inter);
    MPI_Intercomm_merge(inter, rank > 0, &merged);
    show_comm("merged", merged);
    MPI_Comm_free(&merged);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

static int say_goodbye(MPI_Comm comm, int keyval, void *value, void *extra)
{
    int n = 0, sum = 0, one = 1;
    (void)comm, (void)keyval, (void)value, (void)extra;
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    say("inside MPI_Finalize %d %d", n, sum);
    return MPI_SUCCESS;
}

int main(int argc, char **argv)
{
    int keyval, status;
    begin(&argc, &argv);
    show_comm("world", MPI_COMM_WORLD);
    if (argc > 2 && is(argv[2], "abort")) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == size - 1)
            MPI_Abort(MPI_COMM_WORLD, 9);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (argc > 2 && is(argv[2], "exit"))
        exit(6);
    communicators();
    topologies();
    windows_and_files(argv[1]);
    attributes();
    if (size > 1)
        between_groups();
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    status = MPI_Send(&rank, 1, MPI_INT, size, 0, MPI_COMM_WORLD);
    say("no such rank %d", status != MPI_SUCCESS);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, say_goodbye, &keyval, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL);
    MPI_Finalize();
    return 0;
}
