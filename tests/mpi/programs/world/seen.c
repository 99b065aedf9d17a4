/* Asks everything that could tell how many processes there really are, and says what it was answered. */
#include "../ranks.h"
#include <unistd.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

static const char *relation(int result)
{
    return result == MPI_IDENT       ? "identical"
           : result == MPI_CONGRUENT ? "congruent"
           : result == MPI_SIMILAR   ? "similar"
                                     : "unequal";
}

static const char *to_world(MPI_Comm comm)
{
    int result;
    MPI_Comm_compare(MPI_COMM_WORLD, comm, &result);
    return relation(result);
}

static void show_comm(const char *what, MPI_Comm comm)
{
    int n, r, is_inter, length;
    char name[MPI_MAX_OBJECT_NAME];
    if (comm == MPI_COMM_NULL) {
        say("%s: none", what);
        return;
    }
    MPI_Comm_size(comm, &n);
    MPI_Comm_rank(comm, &r);
    MPI_Comm_test_inter(comm, &is_inter);
    MPI_Comm_get_name(comm, name, &length);
    say("%s: %d of %d, inter %d, name '%s', %s to world", what, r, n, is_inter, name,
        is_inter ? "other" : to_world(comm));
}

static void show_group(const char *what, MPI_Group group)
{
    int n, r, others[8], own[8], result;
    MPI_Group world;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_size(group, &n);
    MPI_Group_rank(group, &r);
    for (int i = 0; i < n && i < 8; i++)
        own[i] = i;
    MPI_Group_translate_ranks(group, n, own, world, others);
    MPI_Group_compare(group, world, &result);
    say("%s: %d of %d, %s", what, r, n, relation(result));
    for (int i = 0; i < n; i++)
        say("%s: member %d is %d", what, i, others[i]);
    MPI_Group_free(&world);
    MPI_Group_free(&group);
}

static void groups(void)
{
    MPI_Group world, some;
    MPI_Comm comm;
    int last = size - 1;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &last, &some);
    MPI_Comm_create(MPI_COMM_WORLD, some, &comm);
    show_comm("create of the last", comm);
    if (comm != MPI_COMM_NULL)
        MPI_Comm_free(&comm);
    MPI_Group_free(&some);
    MPI_Group_excl(world, 1, &last, &some);
    show_group("all but the last", some);
    MPI_Comm_group(MPI_COMM_SELF, &some);
    show_group("group of self", some);
    show_group("group of world", world);
}

static void made_of_world(void)
{
    MPI_Comm comm;
    MPI_Group group;
    MPI_Info info;
    MPI_Request request;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    show_comm("dup", comm);
    MPI_Comm_free(&comm);
    MPI_Comm_idup(MPI_COMM_WORLD, &comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    show_comm("idup", comm);
    MPI_Comm_free(&comm);
    MPI_Info_create(&info);
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm);
    show_comm("dup_with_info", comm);
    MPI_Comm_free(&comm);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comm);
    show_comm("split backwards", comm);
    MPI_Comm_group(comm, &group);
    show_group("backwards", group);
    MPI_Comm_free(&comm);
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : 1, 0, &comm);
    show_comm("split without the first", comm);
    if (comm != MPI_COMM_NULL)
        MPI_Comm_free(&comm);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, info, &comm);
    show_comm("split_type", comm);
    MPI_Comm_free(&comm);
    MPI_Comm_group(MPI_COMM_WORLD, &group);
    MPI_Comm_create_group(MPI_COMM_WORLD, group, 5, &comm);
    show_comm("create_group", comm);
    MPI_Group_free(&group);
    MPI_Comm_free(&comm);
    MPI_Info_free(&info);
}

static void topologies(void)
{
    int dims[2] = {0, 0}, periods[2] = {1, 0}, next = (rank + 1) % size, previous = (rank + size - 1) % size, n_in,
        n_out, weighted, kind;
    double gives[4] = {rank, rank, rank, rank}, takes[4] = {-1, -1, -1, -1};
    MPI_Comm comm;
    MPI_Topo_test(MPI_COMM_WORLD, &kind);
    say("topology: %d", kind == MPI_UNDEFINED);
    MPI_Dims_create(size, 2, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 1, &comm);
    show_comm("cart", comm);
    MPI_Neighbor_alltoall(gives, 1, MPI_DOUBLE, takes, 1, MPI_DOUBLE, comm);
    say("neighbours: %g %g %g %g", takes[0], takes[1], takes[2], takes[3]);
    MPI_Comm_free(&comm);
    MPI_Cart_map(MPI_COMM_WORLD, 2, dims, periods, &kind);
    say("cart_map: %d", kind);
    /* MPI_Dist_graph_create with weights hangs in Open MPI 4.1 on three ranks */
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &previous, MPI_UNWEIGHTED, 1, &next, MPI_UNWEIGHTED,
                                   MPI_INFO_NULL, 0, &comm);
    show_comm("dist_graph", comm);
    MPI_Dist_graph_neighbors_count(comm, &n_in, &n_out, &weighted);
    say("dist_graph: in %d out %d", n_in, n_out);
    MPI_Comm_free(&comm);
}

static int copied(MPI_Comm comm, int keyval, void *extra, void *value, void *copy, int *flag)
{
    int n;
    (void)keyval;
    MPI_Comm_size(comm, &n);
    say("attribute copied: %s %d, size %d, extra %d", to_world(comm), comm == MPI_COMM_WORLD, n, *(int *)extra);
    *(void **)copy = value;
    *flag = 1;
    return MPI_SUCCESS;
}

static int deleted(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)keyval;
    say("attribute deleted: %s %d, value %d, extra %d", to_world(comm), comm == MPI_COMM_WORLD, *(int *)value,
        *(int *)extra);
    return MPI_SUCCESS;
}

static void own_attributes(void)
{
    static int first = 1, second = 2, extra = 3, kept = 4;
    int keyval, flag;
    int *value;
    MPI_Comm comm;
    MPI_Comm_create_keyval(copied, deleted, &keyval, &extra);
    MPI_Comm_get_attr(MPI_COMM_WORLD, keyval, &value, &flag);
    say("own attribute: before %d", flag);
    MPI_Comm_set_attr(MPI_COMM_WORLD, keyval, &first);
    MPI_Comm_set_attr(MPI_COMM_WORLD, keyval, &second);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_get_attr(comm, keyval, &value, &flag);
    say("own attribute: of the dup %d %d", flag, flag ? *value : 0);
    MPI_Comm_free(&comm);
    MPI_Comm_delete_attr(MPI_COMM_WORLD, keyval);
    MPI_Comm_get_attr(MPI_COMM_WORLD, keyval, &value, &flag);
    say("own attribute: after %d", flag);
    MPI_Comm_set_attr(MPI_COMM_WORLD, keyval, &kept); /* until MPI_Finalize */
    MPI_Comm_free_keyval(&keyval);
}

static void given_attributes(void)
{
    static const struct {
        const char *name;
        int keyval;
    } known[] = {{"tag_ub", MPI_TAG_UB},
                 {"host", MPI_HOST},
                 {"io", MPI_IO},
                 {"wtime_is_global", MPI_WTIME_IS_GLOBAL},
                 {"appnum", MPI_APPNUM},
                 {"universe_size", MPI_UNIVERSE_SIZE},
                 {"last", MPI_LASTUSEDCODE}};
    int flag, *value, code;
    MPI_Add_error_class(&code);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        MPI_Comm_get_attr(MPI_COMM_WORLD, known[i].keyval, &value, &flag);
        say("%s: %d %d", known[i].name, flag, flag ? *value : 0);
    }
}

static void show_info(const char *what, MPI_Info info)
{
    int n, flag;
    char key[MPI_MAX_INFO_KEY + 1], value[512];
    MPI_Info_get_nkeys(info, &n);
    for (int i = 0; i < n; i++) {
        MPI_Info_get_nthkey(info, i, key);
        MPI_Info_get(info, key, sizeof value - 1, value, &flag);
        if (strstr(key, "_file_dir") == NULL) /* each run has its own */
            say("%s: %s = %s", what, key, value);
    }
}

static void infos(void)
{
    MPI_Info info;
    MPI_Comm_get_info(MPI_COMM_WORLD, &info);
    show_info("info of world", info);
    MPI_Info_set(info, "mpi_assert_no_any_tag", "false");
    MPI_Comm_set_info(MPI_COMM_WORLD, info);
    MPI_Info_free(&info);
    MPI_Comm_get_info(MPI_COMM_WORLD, &info);
    show_info("info of world, set", info);
    MPI_Info_free(&info);
    show_info("info of the environment", MPI_INFO_ENV);
}

static void failed(MPI_Comm *comm, int *code, ...)
{
    int class;
    MPI_Error_class(*code, &class);
    say("error: %s, handle of world %d, class %d", to_world(*comm), *comm == MPI_COMM_WORLD, class);
}

static void errors(void)
{
    MPI_Errhandler before, mine, now;
    MPI_Comm comm;
    int n;
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before);
    say("errors: fatal %d", before == MPI_ERRORS_ARE_FATAL);
    MPI_Comm_create_errhandler(failed, &mine);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, mine);
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &now);
    say("errors: own %d", now == mine);
    MPI_Errhandler_free(&now);
    MPI_Comm_call_errhandler(MPI_COMM_WORLD, MPI_ERR_TAG);
    n = MPI_Send(&n, 1, MPI_INT, size, 0, MPI_COMM_WORLD);
    say("errors: to a rank beyond %d", n != MPI_SUCCESS);
    n = MPI_Comm_rank(MPI_COMM_NULL, &n);
    say("errors: without communicator %d", n != MPI_SUCCESS);
    comm = MPI_COMM_WORLD;
    n = MPI_Comm_free(&comm);
    say("errors: free of world %d", n != MPI_SUCCESS);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    n = MPI_Send(&n, 1, MPI_INT, size, 0, comm);
    say("errors: on a dup %d", n != MPI_SUCCESS);
    MPI_Comm_free(&comm);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, before);
    MPI_Errhandler_free(&before);
    MPI_Errhandler_free(&mine);
}

static void windows_and_files(const char *path)
{
    MPI_Win win;
    MPI_Group group;
    MPI_File file;
    MPI_Info info;
    MPI_Offset n_bytes;
    int *base, *value, flag, one = 1;
    MPI_Win_allocate(sizeof *base, sizeof *base, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
#ifdef OPEN_MPI /* Debian's MPICH 4.0.2 puts all into rank 0, with and without the shim */
    MPI_Win_fence(0, win);
    MPI_Put(&rank, 1, MPI_INT, (rank + 1) % size, 0, 1, MPI_INT, win);
    MPI_Win_fence(0, win);
    say("window: %d put", *base);
#endif
    MPI_Win_get_group(win, &group);
    show_group("window", group);
    MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, &value, &flag);
    say("window: unit %d %d", flag, *value);
    MPI_Win_free(&win);
    MPI_Win_allocate_shared(sizeof *base, sizeof *base, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    MPI_Win_get_group(win, &group);
    show_group("shared window", group);
    MPI_Win_free(&win);
    MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL,
                  &file);
    MPI_File_write_at_all(file, (MPI_Offset)rank * 4, &one, 1, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_get_size(file, &n_bytes);
    say("file: %d bytes", (int)n_bytes);
    MPI_File_get_group(file, &group);
    show_group("file", group);
    MPI_File_get_info(file, &info);
    show_info("file", info);
    MPI_Info_free(&info);
    MPI_File_close(&file);
}

/* Not of the standard, but it takes the world all the same. */
static void extensions(void)
{
#ifdef OMPI_HAVE_MPI_EXT_PCOLLREQ
    int one = 1, sum = 0;
    MPI_Request request;
    MPIX_Allreduce_init(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Request_free(&request);
    say("persistent sum: %d", sum);
#endif
}

static void halves(void)
{
    MPI_Comm half, inter, merged;
    MPI_Group group;
    char port[MPI_MAX_PORT_NAME] = "";
    int n, is_first = rank == 0, has_ports = 0, given = rank;
    MPI_Comm_split(MPI_COMM_WORLD, is_first, 0, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, is_first ? 1 : 0, 9, &inter);
    show_comm("halves", inter);
    MPI_Comm_remote_group(inter, &group);
    show_group("other half", group);
    MPI_Bcast(&given, 1, MPI_INT, is_first ? MPI_ROOT : 0, inter);
    MPI_Intercomm_merge(inter, !is_first, &merged);
    show_comm("merged", merged);
    say("given: %d", given);
    MPI_Comm_free(&merged);
    MPI_Comm_free(&inter);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* not every MPICH has ports */
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    if (is_first)
        has_ports = MPI_Open_port(MPI_INFO_NULL, port) == MPI_SUCCESS;
    MPI_Bcast(&has_ports, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Bcast(port, sizeof port, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (has_ports && is_first)
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, half, &inter);
    else if (has_ports)
        MPI_Comm_connect(port, MPI_INFO_NULL, 0, half, &inter);
    if (has_ports) {
        MPI_Comm_remote_size(inter, &n);
        say("connected: to %d", n);
        MPI_Comm_disconnect(&inter);
    }
    if (has_ports && is_first)
        MPI_Close_port(port);
    MPI_Comm_free(&half);
}

static int at_end(MPI_Comm comm, int keyval, void *value, void *extra)
{
    int n, sum = 0, one = 1;
    (void)comm, (void)keyval, (void)value, (void)extra;
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    say("inside MPI_Finalize: %d %d", n, sum);
    return MPI_SUCCESS;
}

int main(int argc, char **argv)
{
    MPI_Comm parent;
    int keyval;
    int has_threads = argc > 2 && strcmp(argv[2], "threads") == 0, level;
    /* A launcher passes on what a rank says in pieces of 4 kB, and other ranks' pieces may come between. */
    char said[4096];
    snprintf(said, sizeof said, "%s.said.%d", argv[1], (int)getpid());
    if (freopen(said, "w", stdout) == NULL)
        return 1;
    MPI_Init_thread(&argc, &argv, has_threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
    find_place();
    show_comm("world", MPI_COMM_WORLD);
    show_comm("world to Fortran and back", MPI_Comm_f2c(MPI_Comm_c2f(MPI_COMM_WORLD)));
    show_comm("self", MPI_COMM_SELF);
    MPI_Comm_get_parent(&parent);
    show_comm("parent", parent);
    groups();
    made_of_world();
    topologies();
    own_attributes();
    given_attributes();
    infos();
    errors();
    windows_and_files(argv[1]);
    extensions();
    if (size > 1)
        halves();
    MPI_Comm_set_name(MPI_COMM_WORLD, "everybody");
    show_comm("renamed", MPI_COMM_WORLD);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_end, &keyval, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL);
    MPI_Finalize();
    return 0;
}
