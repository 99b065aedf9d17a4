/* Everything that can show which world a program lives in. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

static void show_group(const char *what, MPI_Group group)
{
    int n;
    MPI_Group_size(group, &n);
    printf("rank %d: %s %d\n", rank, what, n);
    MPI_Group_free(&group);
}

static void show_comm(const char *what, MPI_Comm comm)
{
    int n, r;
    MPI_Comm_size(comm, &n);
    MPI_Comm_rank(comm, &r);
    printf("rank %d: %s %d of %d\n", rank, what, r, n);
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
    printf("rank %d: congruent %d\n", rank, equal == MPI_CONGRUENT);
    MPI_Comm_compare(MPI_COMM_WORLD, MPI_COMM_WORLD, &equal);
    printf("rank %d: identical %d\n", rank, equal == MPI_IDENT);
    MPI_Comm_free(&made);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &made);
    show_comm("split", made);
    MPI_Comm_free(&made);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &made);
    show_comm("node", made);
    MPI_Comm_free(&made);
    MPI_Comm_get_name(MPI_COMM_WORLD, name, &length);
    printf("rank %d: name %s\n", rank, name);
}

static void topologies(void)
{
    int dims[1] = {0}, periods[1] = {1};
    MPI_Comm cart;
    double gives[2] = {rank, rank}, takes[2];
    MPI_Dims_create(size, 1, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &cart);
    MPI_Neighbor_alltoall(gives, 1, MPI_DOUBLE, takes, 1, MPI_DOUBLE, cart);
    printf("rank %d: neighbours %g %g\n", rank, takes[0], takes[1]);
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
    printf("rank %d: window %d\n", rank, base);
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
    printf("rank %d: file %d\n", rank, (int)bytes == 4 * size);
    MPI_File_close(&file);
}

static void attributes(void)
{
    static int mine = 42;
    int keys[] = {MPI_TAG_UB, MPI_IO, MPI_WTIME_IS_GLOBAL}, keyval, flag;
    void *value;
    for (int i = 0; i < 3; i++) {
        MPI_Comm_get_attr(MPI_COMM_WORLD, keys[i], &value, &flag);
        printf("rank %d: attribute %d\n", rank, flag);
    }
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &keyval, NULL);
    MPI_Comm_set_attr(MPI_COMM_WORLD, keyval, &mine);
    MPI_Comm_get_attr(MPI_COMM_WORLD, keyval, &value, &flag);
    printf("rank %d: own attribute %d %d\n", rank, flag, flag ? *(int *)value : 0);
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
    printf("rank %d: remote %d\n", rank, n);
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
    printf("rank %d: inside MPI_Finalize %d %d\n", rank, n, sum);
    return MPI_SUCCESS;
}

int main(int argc, char **argv)
{
    int keyval, status;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    show_comm("world", MPI_COMM_WORLD);
    if (argc > 2 && strcmp(argv[2], "abort") == 0) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == size - 1)
            MPI_Abort(MPI_COMM_WORLD, 9);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (argc > 2 && strcmp(argv[2], "exit") == 0)
        exit(6);
    communicators();
    topologies();
    windows_and_files(argv[1]);
    attributes();
    if (size > 1)
        between_groups();
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    status = MPI_Send(&rank, 1, MPI_INT, size, 0, MPI_COMM_WORLD);
    printf("rank %d: no such rank %d\n", rank, status != MPI_SUCCESS);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, say_goodbye, &keyval, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL);
    MPI_Finalize();
    return 0;
}
