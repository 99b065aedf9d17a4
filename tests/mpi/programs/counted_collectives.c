/* Runs the collectives that a file names, and writes what Open MPI's own component `monitoring` counted for each: a line
   "number src dst bytes messages" per pair of ranks, into a file per rank. Lines of the plan: "name items root"; items have
   8 bytes; with "v" collectives rank i has (7 i + items) % 11 times as many. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Open MPI's component `monitoring` calls this for every message that its collectives and the program send. The name is
   the library's: a program's own definition comes first. (Release 4.1.4 takes its MPI_T variables away again.) */
void mca_common_monitoring_record_pml(int world_rank, size_t data_size, int tag);
static unsigned long *bytes, *messages;

void mca_common_monitoring_record_pml(int world_rank, size_t data_size, int tag)
{
    (void)tag;
    if (bytes == NULL)
        return;
    bytes[world_rank] += data_size;
    messages[world_rank]++;
}

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

static void run(const char *name, int n, int root, int rank, int p, double *in, double *out)
{
    MPI_Comm w = MPI_COMM_WORLD;
    MPI_Datatype d = MPI_DOUBLE;
    share(n, p);
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
    else {
        fprintf(stderr, "unknown collective %s\n", name);
        MPI_Abort(w, 1);
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
    bytes = calloc((size_t)p, sizeof *bytes);
    messages = calloc((size_t)p, sizeof *messages);
    snprintf(path, sizeof path, "%s.%d", argv[2], rank);
    FILE *result = fopen(path, "w");
    for (int i = 0; fscanf(plan, "%63s %d %d", name, &n, &root) == 3; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        memset(bytes, 0, (size_t)p * sizeof *bytes);
        memset(messages, 0, (size_t)p * sizeof *messages);
        run(name, n, root, rank, p, in, out);
        for (int dst = 0; dst < p; dst++)
            if (messages[dst] > 0)
                fprintf(result, "%d %d %d %lu %lu\n", i, rank, dst, bytes[dst], messages[dst]);
    }
    fclose(result);
    MPI_Finalize();
    return 0;
}
