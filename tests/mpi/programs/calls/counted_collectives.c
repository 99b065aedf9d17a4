/* Runs the collectives that a file names, and writes what the library sent for each: a line "number src dst bytes
   messages" per pair of ranks, into a file per rank; number -1: from MPI_Init to the end of the plan. Open MPI's own
   component `monitoring` counts, or whoever asks UCX to send. Lines of the plan: "how name items root"; items have 8
   bytes; with "v" collectives rank i has (7 i + items) % 11 times as many. How: "blocking", "nonblocking", "persistent"
   (started twice), or "between" even and odd ranks, the root being even. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct tally {
    unsigned long bytes, messages;
} tally;

static tally *now, *ever; /* by rank */

static void sent(int world_rank, size_t data_size)
{
    if (now == NULL)
        return;
    now[world_rank].bytes += data_size;
    now[world_rank].messages++;
    ever[world_rank].bytes += data_size;
    ever[world_rank].messages++;
}

static void tell(FILE *result, int number, int rank, const tally *tallies, int p)
{
    for (int dst = 0; dst < p; dst++)
        if (tallies[dst].messages > 0)
            fprintf(result, "%d %d %d %lu %lu\n", number, rank, dst, tallies[dst].bytes, tallies[dst].messages);
}

#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION < 5
#include <mpi-ext.h>
#define INIT(name) MPIX_##name##_init
#else
#define INIT(name) MPI_##name##_init
#endif

#ifdef OPEN_MPI
/* The component `monitoring` calls this for every message that its collectives and the program send. The name is the
   library's: a program's own definition comes first. (Release 4.1.4 takes its MPI_T variables away again.) */
void mca_common_monitoring_record_pml(int world_rank, size_t data_size, int tag);

void mca_common_monitoring_record_pml(int world_rank, size_t data_size, int tag)
{
    (void)tag;
    sent(world_rank, data_size);
}
#else
/* MPICH over UCX, all ranks as if on nodes of their own (MPIR_CVAR_NOLOCAL): every message goes through this function,
   and it has made its ends in the order of the ranks. */
static void *ends[1024];
static int n_ends;

int ucp_ep_create(void *worker, const void *how, void **end);
void *ucp_tag_send_nbx(void *end, const void *buffer, size_t count, uint64_t tag, const void *how);

int ucp_ep_create(void *worker, const void *how, void **end)
{
    int (*real)(void *, const void *, void **) = (int (*)(void *, const void *, void **))dlsym(RTLD_NEXT, __func__);
    int status = real(worker, how, end);
    if (status == 0 && n_ends < 1024)
        ends[n_ends++] = *end;
    return status;
}

void *ucp_tag_send_nbx(void *end, const void *buffer, size_t count, uint64_t tag, const void *how)
{
    static void *(*real)(void *, const void *, size_t, uint64_t, const void *);
    if (real == NULL)
        real = (void *(*)(void *, const void *, size_t, uint64_t, const void *))dlsym(RTLD_NEXT, __func__);
    for (int i = 0; i < n_ends; i++)
        if (ends[i] == end)
            sent(i, count);
    return real(end, buffer, count, tag, how);
}
#endif

static int *counts, *displacements, total;

static void share(int items, int p)
{
    total = 0;
    for (int i = 0; i < p; i++) {
        counts[i] = (i * 7 + items) % 11 * items;
        displacements[i] = total;
        total += counts[i];
    }
}

/* Name in the plan, in MPI, and behind MPI_I; arguments up to the communicator w. Those that have all forms: */
#define IN_ALL_FORMS(X) \
    X("bcast", Bcast, bcast, in, n, d, root, w) \
    X("reduce", Reduce, reduce, in, out, n, d, MPI_SUM, root, w) \
    X("allreduce", Allreduce, allreduce, in, out, n, d, MPI_SUM, w) \
    X("gather", Gather, gather, in, n, d, out, n, d, root, w) \
    X("scatter", Scatter, scatter, in, n, d, out, n, d, root, w) \
    X("allgather", Allgather, allgather, in, n, d, out, n, d, w) \
    X("alltoall", Alltoall, alltoall, in, n, d, out, n, d, w) \
    X("barrier", Barrier, barrier, w) \
    X("scan", Scan, scan, in, out, n, d, MPI_SUM, w) \
    X("exscan", Exscan, exscan, in, out, n, d, MPI_SUM, w) \
    X("reduce_scatter_block", Reduce_scatter_block, reduce_scatter_block, in, out, n, d, MPI_SUM, w) \
    X("reduce_scatter", Reduce_scatter, reduce_scatter, in, out, counts, d, MPI_SUM, w) \
    X("allgatherv", Allgatherv, allgatherv, in, counts[rank], d, out, counts, displacements, d, w)
/* And those that are only made blocking. */
#define BLOCKING_ONLY(X) \
    X("gatherv", Gatherv, gatherv, in, counts[rank], d, out, counts, displacements, d, root, w) \
    X("scatterv", Scatterv, scatterv, in, counts, displacements, d, out, counts[rank], d, root, w)

#define RUN(text, call, later, ...) \
    if (!strcmp(name, text)) { \
        MPI_##call(__VA_ARGS__); \
        return; \
    }
#define RUN_LATER(text, call, later, ...) \
    if (!strcmp(name, text)) { \
        MPI_I##later(__VA_ARGS__, &r); \
        MPI_Wait(&r, MPI_STATUS_IGNORE); \
        return; \
    }
#define RUN_OFTEN(text, call, later, ...) \
    if (!strcmp(name, text)) { \
        INIT(call)(__VA_ARGS__, MPI_INFO_NULL, &r); \
        run_twice(r); \
        return; \
    }

static void run_twice(MPI_Request r)
{
    MPI_Start(&r);
    MPI_Wait(&r, MPI_STATUS_IGNORE);
    MPI_Startall(1, &r);
    MPI_Wait(&r, MPI_STATUS_IGNORE);
    MPI_Request_free(&r);
}

static void run_on(MPI_Comm w, const char *how, const char *name, int n, int root, int rank, double *in, double *out)
{
    MPI_Datatype d = MPI_DOUBLE;
    MPI_Request r;
    if (!strcmp(how, "nonblocking")) {
        IN_ALL_FORMS(RUN_LATER)
    } else if (!strcmp(how, "persistent")) {
        IN_ALL_FORMS(RUN_OFTEN)
    } else {
        IN_ALL_FORMS(RUN)
        BLOCKING_ONLY(RUN)
    }
    fprintf(stderr, "unknown collective %s\n", name);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static MPI_Comm between;

/* Open MPI's component `monitoring` writes beyond its memory where the groups differ in size. */
static void pair_up(int rank, int p)
{
    MPI_Comm group;
    if (p % 2 == 1)
        return;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &group);
    MPI_Intercomm_create(group, 0, MPI_COMM_WORLD, 1 - rank % 2, 0, &between);
}

static void run(const char *how, const char *name, int n, int root, int rank, int p, double *in, double *out)
{
    int place = rank / 2, is_even = rank % 2 == 0;
    share(n, p);
    if (strcmp(how, "between") != 0)
        run_on(MPI_COMM_WORLD, how, name, n, root, rank, in, out);
    else
        run_on(between, how, name, n, !is_even ? root : place == root ? MPI_ROOT : MPI_PROC_NULL, place, in, out);
}

int main(int argc, char **argv)
{
    int rank, p, n_max = 0, n, root;
    char how[64], name[64], path[4096];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &p);
    counts = calloc((size_t)p, sizeof *counts);
    displacements = calloc((size_t)p, sizeof *displacements);
    FILE *plan = fopen(argv[1], "r");
    while (fscanf(plan, "%63s %63s %d %d", how, name, &n, &root) == 4)
        n_max = n > n_max ? n : n_max;
    rewind(plan);
    double *in = calloc((size_t)n_max * (size_t)p * 11 + 1, sizeof *in),
           *out = calloc((size_t)n_max * (size_t)p * 11 + 1, sizeof *out);
    pair_up(rank, p);
    ever = calloc((size_t)p, sizeof *ever);
    now = calloc((size_t)p, sizeof *now);
    snprintf(path, sizeof path, "%s.%d", argv[2], rank);
    FILE *result = fopen(path, "w");
    for (int i = 0; fscanf(plan, "%63s %63s %d %d", how, name, &n, &root) == 4; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        memset(now, 0, (size_t)p * sizeof *now);
        run(how, name, n, root, rank, p, in, out);
        tell(result, i, rank, now, p);
    }
    tell(result, -1, rank, ever, p);
    fclose(result);
    MPI_Finalize();
    return 0;
}
