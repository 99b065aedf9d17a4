/* Heat on a periodic square plate, explicit five-point stencil, rows divided over the ranks: bound by memory.

   mpicc -O2 -o heat2d heat2d.c -lm
   mpirun -n 2 ./heat2d [points per side] [steps]

   Heat is conserved, so the printed total must stay what it was: the program checks it and returns 1 if not. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define STEPS_PER_RESIDUAL 10

typedef struct plate {
    int n, n_rows; /* columns, and own rows; rows 0 and n_rows + 1 are the neighbours' */
    int above, below;
    double *now, *next;
} plate;

static double *row(double *grid, int n, int i_row)
{
    return grid + (size_t)i_row * (size_t)n;
}

static int plate_open(plate *p, int n, int rank, int n_ranks)
{
    int first = (int)((long)n * rank / n_ranks);
    p->n = n;
    p->n_rows = (int)((long)n * (rank + 1) / n_ranks) - first;
    p->above = (rank + n_ranks - 1) % n_ranks;
    p->below = (rank + 1) % n_ranks;
    size_t n_points = (size_t)n * (size_t)(p->n_rows + 2);
    p->now = calloc(n_points, sizeof(double));
    p->next = calloc(n_points, sizeof(double));
    if (p->now == NULL || p->next == NULL)
        return -1;
    for (int i = 1; i <= p->n_rows; i++)
        for (int j = 0; j < n; j++) {
            double y = (first + i - 0.5) / n - 0.5, x = (j + 0.5) / n - 0.5;
            row(p->now, n, i)[j] = exp(-40.0 * (x * x + y * y));
        }
    return 0;
}

static void exchange_halo(plate *p)
{
    MPI_Request requests[4];
    MPI_Status statuses[4];
    int n = p->n;
    MPI_Irecv(row(p->now, n, 0), n, MPI_DOUBLE, p->above, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(row(p->now, n, p->n_rows + 1), n, MPI_DOUBLE, p->below, 2, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(row(p->now, n, p->n_rows), n, MPI_DOUBLE, p->below, 1, MPI_COMM_WORLD, &requests[2]);
    MPI_Isend(row(p->now, n, 1), n, MPI_DOUBLE, p->above, 2, MPI_COMM_WORLD, &requests[3]);
    MPI_Waitall(4, requests, statuses);
}

/* One step; returns the sum of squared changes of the own rows. */
static double step(plate *p)
{
    const double c = 0.2;
    int n = p->n;
    double change = 0.0;
    for (int i = 1; i <= p->n_rows; i++) {
        const double *up = row(p->now, n, i - 1), *here = row(p->now, n, i), *down = row(p->now, n, i + 1);
        double *out = row(p->next, n, i);
        for (int j = 0; j < n; j++) {
            int left = j == 0 ? n - 1 : j - 1, right = j == n - 1 ? 0 : j + 1;
            double d = c * (up[j] + down[j] + here[left] + here[right] - 4.0 * here[j]);
            out[j] = here[j] + d;
            change += d * d;
        }
    }
    double *swap = p->now;
    p->now = p->next;
    p->next = swap;
    return change;
}

static double total_heat(plate *p)
{
    double own = 0.0, all = 0.0;
    for (int i = 1; i <= p->n_rows; i++)
        for (int j = 0; j < p->n; j++)
            own += row(p->now, p->n, i)[j];
    MPI_Allreduce(&own, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

static double simulate(plate *p, int n_steps)
{
    double residual = 0.0;
    for (int i = 1; i <= n_steps; i++) {
        exchange_halo(p);
        double change = step(p);
        if (i % STEPS_PER_RESIDUAL == 0 || i == n_steps)
            MPI_Allreduce(&change, &residual, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    return sqrt(residual);
}

int main(int argc, char **argv)
{
    int rank, n_ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    int n = argc > 1 ? atoi(argv[1]) : 2000;
    int n_steps = argc > 2 ? atoi(argv[2]) : 2000;
    plate p = {0};
    if (n < n_ranks || n_steps < 1 || plate_open(&p, n, rank, n_ranks) != 0) {
        fprintf(stderr, "heat2d: needs at least one row per rank, one step, and memory for the plate\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    double before = total_heat(&p);
    double t0 = MPI_Wtime();
    double residual = simulate(&p, n_steps);
    double elapsed_s = MPI_Wtime() - t0;
    double after = total_heat(&p);
    int conserved = fabs(after - before) < 1e-9 * before;
    if (rank == 0) {
        printf("heat2d: %d x %d points, %d steps, %d ranks\n", n, n, n_steps, n_ranks);
        printf("residual %.6e  total heat %.6f  %s\n", residual, after, conserved ? "conserved" : "NOT CONSERVED");
        printf("loop_s %.3f\n", elapsed_s);
    }
    free(p.now);
    free(p.next);
    MPI_Finalize();
    return conserved ? 0 : 1;
}
