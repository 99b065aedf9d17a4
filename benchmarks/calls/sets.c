/* Programs with a working set of so many megabytes a rank, which caches may hold or not. A step takes some milliseconds and
   ends with MPI_Allreduce.

   mpicc -O2 -o sets sets.c
   mpirun -n 1 ./sets read|write|random|update MEGABYTES STEPS */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP_BYTES (32UL << 20)
#define STEP_TOUCHES 200000

static double *set;
static size_t n;
static uint64_t seed = 88172645463325252u;

static size_t place(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (size_t)(((seed & UINT32_MAX) * n) >> 32);
}

static double step_read(size_t from)
{
    double sum = 0;
    for (size_t i = 0, at = from; i < STEP_BYTES / sizeof *set; i++) {
        sum += set[at];
        at = at + 1 == n ? 0 : at + 1;
    }
    return sum;
}

static double step_write(size_t from)
{
    for (size_t i = 0, at = from; i < STEP_BYTES / sizeof *set; i++) {
        set[at] = (double)i;
        at = at + 1 == n ? 0 : at + 1;
    }
    return set[from];
}

static double step_random(size_t from)
{
    double sum = (double)from;
    for (int i = 0; i < STEP_TOUCHES; i++)
        sum += set[place()];
    return sum;
}

static double step_update(size_t from)
{
    for (int i = 0; i < STEP_TOUCHES; i++)
        set[place()] += (double)from;
    return set[from];
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"read", "write", "random", "update"};
    double (*const steps[])(size_t) = {step_read, step_write, step_random, step_update};
    int which = 0, n_steps = argc > 3 ? atoi(argv[3]) : 0;
    MPI_Init(&argc, &argv);
    while (which < 4 && (argc < 2 || strcmp(argv[1], names[which]) != 0))
        which++;
    n = (size_t)(argc > 2 ? atoi(argv[2]) : 0) << 17;
    set = n ? calloc(n, sizeof *set) : NULL;
    if (which == 4 || set == NULL) {
        fprintf(stderr, "usage: sets read|write|random|update MEGABYTES STEPS\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    memset(set, 1, n * sizeof *set);
    double sum = 0, all = 0;
    for (int i = 0; i < n_steps; i++) {
        sum += steps[which]((size_t)i * (STEP_BYTES / sizeof *set) % n);
        MPI_Allreduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    free(set);
    MPI_Finalize();
    return 0;
}
