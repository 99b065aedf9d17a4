/* Runs the collectives that a file names, and writes what the library sent for each: a line "number src dst bytes messages"
   per pair of ranks, into a file per rank; number -1: from MPI_Init to the end of the plan. Open MPI's own component
   `monitoring` counts, or whoever asks UCX to send. Lines of the plan: "name items root"; items have 8 bytes; with "v"
   collectives rank i has (7 i + items) % 11 times as many. */
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

/* 0: the name is of no blocking function. */
static int run_blocking(const char *name, int n, int root, int rank, double *in, double *out)
{
    MPI_Comm w = MPI_COMM_WORLD;
    MPI_Datatype d = MPI_DOUBLE;
    if (!strcmp(name, "bcast"))
        MPI_Bcast(in, n, d, root, w);
    else if (!strcmp(name, "reduce"))
        MPI_Reduce(in, out, n, d, MPI_SUM, root, w);
    else if (!strcmp(name, "allreduce"))
        MPI_Allreduce(in, out, n, d, MPI_SUM, w);
    else if (!strcmp(name, "gather"))
        MPI_Gather(in, n, d, out, n, d, root, w);
    else if (!strcmp(name, "scatter"))
        MPI_Scatter(in, n, d, out, n, d, root, w);
    else if (!strcmp(name, "allgather"))
        MPI_Allgather(in, n, d, out, n, d, w);
    else if (!strcmp(name, "alltoall"))
        MPI_Alltoall(in, n, d, out, n, d, w);
    else if (!strcmp(name, "barrier"))
        MPI_Barrier(w);
    else if (!strcmp(name, "scan"))
        MPI_Scan(in, out, n, d, MPI_SUM, w);
    else if (!strcmp(name, "exscan"))
        MPI_Exscan(in, out, n, d, MPI_SUM, w);
    else if (!strcmp(name, "reduce_scatter_block"))
        MPI_Reduce_scatter_block(in, out, n, d, MPI_SUM, w);
    else if (!strcmp(name, "reduce_scatter"))
        MPI_Reduce_scatter(in, out, counts, d, MPI_SUM, w);
    else if (!strcmp(name, "gatherv"))
        MPI_Gatherv(in, counts[rank], d, out, counts, displacements, d, root, w);
    else if (!strcmp(name, "scatterv"))
        MPI_Scatterv(in, counts, displacements, d, out, counts[rank], d, root, w);
    else if (!strcmp(name, "allgatherv"))
        MPI_Allgatherv(in, counts[rank], d, out, counts, displacements, d, w);
    else
        return 0;
    return 1;
}

static int run_nonblocking(const char *name, int n, int root, int rank, double *in, double *out)
{
    MPI_Comm w = MPI_COMM_WORLD;
    MPI_Datatype d = MPI_DOUBLE;
    MPI_Request r;
    if (!strcmp(name, "ibcast"))
        MPI_Ibcast(in, n, d, root, w, &r);
    else if (!strcmp(name, "ireduce"))
        MPI_Ireduce(in, out, n, d, MPI_SUM, root, w, &r);
    else if (!strcmp(name, "iallreduce"))
        MPI_Iallreduce(in, out, n, d, MPI_SUM, w, &r);
    else if (!strcmp(name, "igather"))
        MPI_Igather(in, n, d, out, n, d, root, w, &r);
    else if (!strcmp(name, "iscatter"))
        MPI_Iscatter(in, n, d, out, n, d, root, w, &r);
    else if (!strcmp(name, "iallgather"))
        MPI_Iallgather(in, n, d, out, n, d, w, &r);
    else if (!strcmp(name, "ialltoall"))
        MPI_Ialltoall(in, n, d, out, n, d, w, &r);
    else if (!strcmp(name, "ibarrier"))
        MPI_Ibarrier(w, &r);
    else if (!strcmp(name, "iscan"))
        MPI_Iscan(in, out, n, d, MPI_SUM, w, &r);
    else if (!strcmp(name, "iexscan"))
        MPI_Iexscan(in, out, n, d, MPI_SUM, w, &r);
    else if (!strcmp(name, "ireduce_scatter_block"))
        MPI_Ireduce_scatter_block(in, out, n, d, MPI_SUM, w, &r);
    else if (!strcmp(name, "ireduce_scatter"))
        MPI_Ireduce_scatter(in, out, counts, d, MPI_SUM, w, &r);
    else if (!strcmp(name, "iallgatherv"))
        MPI_Iallgatherv(in, counts[rank], d, out, counts, displacements, d, w, &r);
    else
        return 0;
    return MPI_Wait(&r, MPI_STATUS_IGNORE) == MPI_SUCCESS;
}

static void run(const char *name, int n, int root, int rank, int p, double *in, double *out)
{
    share(n, p);
    if (!run_blocking(name, n, root, rank, in, out) && !run_nonblocking(name, n, root, rank, in, out)) {
        fprintf(stderr, "unknown collective %s\n", name);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int argc, char **argv)
{
    int rank, p, n_max = 0, n, root;
    char name[64], path[4096];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &p);
    counts = calloc((size_t)p, sizeof *counts);
    displacements = calloc((size_t)p, sizeof *displacements);
    FILE *plan = fopen(argv[1], "r");
    while (fscanf(plan, "%63s %d %d", name, &n, &root) == 3)
        n_max = n > n_max ? n : n_max;
    rewind(plan);
    double *in = calloc((size_t)n_max * (size_t)p * 11 + 1, sizeof *in),
           *out = calloc((size_t)n_max * (size_t)p * 11 + 1, sizeof *out);
    ever = calloc((size_t)p, sizeof *ever);
    now = calloc((size_t)p, sizeof *now);
    snprintf(path, sizeof path, "%s.%d", argv[2], rank);
    FILE *result = fopen(path, "w");
    for (int i = 0; fscanf(plan, "%63s %d %d", name, &n, &root) == 3; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        memset(now, 0, (size_t)p * sizeof *now);
        run(name, n, root, rank, p, in, out);
        tell(result, i, rank, now, p);
    }
    tell(result, -1, rank, ever, p);
    fclose(result);
    MPI_Finalize();
    return 0;
}
