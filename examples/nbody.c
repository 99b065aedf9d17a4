/* Bodies under their own gravity, all pairs, bodies divided over the ranks: bound by the processor.

   mpicc -O2 -o nbody nbody.c -lm
   mpirun -n 2 ./nbody [bodies] [steps]

   Momentum is conserved, so the sum of all velocities must stay zero: the program checks it and returns 1 if not. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define SOFTENING 1e-3
#define DT 1e-4

typedef struct bodies {
    int n, first, n_own;
    double *position, *velocity; /* of all bodies, of the own ones; x y z of one body side by side */
    int *counts, *offsets;       /* how MPI_Allgatherv deals the positions */
} bodies;

/* Numbers in [-0.5, 0.5), the same on every rank and machine. */
static double next_random(unsigned long long *state)
{
    *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (double)(*state >> 11) / 9007199254740992.0 - 0.5;
}

static int bodies_open(bodies *b, int n, int rank, int n_ranks)
{
    b->n = n;
    b->position = malloc(3 * (size_t)n * sizeof(double));
    b->velocity = calloc(3 * (size_t)n, sizeof(double));
    b->counts = malloc((size_t)n_ranks * sizeof(int));
    b->offsets = malloc((size_t)n_ranks * sizeof(int));
    if (b->position == NULL || b->velocity == NULL || b->counts == NULL || b->offsets == NULL)
        return -1;
    unsigned long long state = 42;
    for (int i = 0; i < 3 * n; i++)
        b->position[i] = next_random(&state);
    for (int i = 0; i < n_ranks; i++) {
        int begin = (int)((long)n * i / n_ranks), end = (int)((long)n * (i + 1) / n_ranks);
        b->offsets[i] = 3 * begin;
        b->counts[i] = 3 * (end - begin);
    }
    b->first = b->offsets[rank] / 3;
    b->n_own = b->counts[rank] / 3;
    return 0;
}

static void accelerate(bodies *b)
{
    double mass = 1.0 / b->n;
    for (int i = 0; i < b->n_own; i++) {
        const double *own = b->position + 3 * (b->first + i);
        double ax = 0.0, ay = 0.0, az = 0.0;
        for (int j = 0; j < b->n; j++) {
            const double *other = b->position + 3 * j;
            double dx = other[0] - own[0], dy = other[1] - own[1], dz = other[2] - own[2];
            double r2 = dx * dx + dy * dy + dz * dz + SOFTENING;
            double f = mass / (r2 * sqrt(r2));
            ax += f * dx;
            ay += f * dy;
            az += f * dz;
        }
        b->velocity[3 * i] += DT * ax;
        b->velocity[3 * i + 1] += DT * ay;
        b->velocity[3 * i + 2] += DT * az;
    }
}

static void step(bodies *b)
{
    accelerate(b);
    for (int i = 0; i < 3 * b->n_own; i++)
        b->position[3 * b->first + i] += DT * b->velocity[i];
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, b->position, b->counts, b->offsets, MPI_DOUBLE, MPI_COMM_WORLD);
}

/* Sums over all bodies: velocity in x, y, z, and twice the kinetic energy per mass. */
static void totals(const bodies *b, double out[4])
{
    double own[4] = {0.0, 0.0, 0.0, 0.0};
    for (int i = 0; i < 3 * b->n_own; i++) {
        own[i % 3] += b->velocity[i];
        own[3] += b->velocity[i] * b->velocity[i];
    }
    MPI_Allreduce(own, out, 4, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    int rank, n_ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    int n = argc > 1 ? atoi(argv[1]) : 1000;
    int n_steps = argc > 2 ? atoi(argv[2]) : 4000;
    bodies b = {0};
    if (n < n_ranks || n_steps < 1 || bodies_open(&b, n, rank, n_ranks) != 0) {
        fprintf(stderr, "nbody: needs at least one body per rank, one step, and memory for the bodies\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    double t0 = MPI_Wtime(), sums[4];
    for (int i = 0; i < n_steps; i++)
        step(&b);
    double elapsed_s = MPI_Wtime() - t0;
    totals(&b, sums);
    int conserved = fabs(sums[0]) + fabs(sums[1]) + fabs(sums[2]) < 1e-9 * n;
    if (rank == 0) {
        printf("nbody: %d bodies, %d steps, %d ranks\n", n, n_steps, n_ranks);
        printf("kinetic energy %.9e  momentum %s\n", 0.5 * sums[3] / n, conserved ? "conserved" : "NOT CONSERVED");
        printf("loop_s %.3f\n", elapsed_s);
    }
    free(b.position);
    free(b.velocity);
    free(b.counts);
    free(b.offsets);
    MPI_Finalize();
    return conserved ? 0 : 1;
}
