/* Two loops of short instructions, entered rarely: nothing in them can be replaced by a jump. No MPI call in between.

   plain SECONDS MEGABYTES */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

__attribute__((noinline, optimize("no-tree-vectorize"))) static void stream(double *a, const double *b, long n)
{
    for (long i = 0; i < n; i++)
        a[i] = a[i] * 0.999 + b[i];
}

__attribute__((noinline)) static double chain(double x, long n)
{
    for (long i = 0; i < n; i++) {
        x *= 1.0000001;
        __asm__ volatile("" : "+x"(x)); /* the compiler must not leave passes out */
    }
    return x;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    long n = atol(argv[2]) * 65536;
    double *a = calloc((size_t)n, sizeof *a), *b = calloc((size_t)n, sizeof *b), x = 1.0;
    double end_s = now_s() + atof(argv[1]);
    for (long i = 0; i < n; i++)
        b[i] = (double)i;
    while (now_s() < end_s) {
        stream(a, b, n);
        x = chain(x, n) > 1e300 ? 1.0 : x;
    }
    printf("ended %d\n", a[n - 1] > 0 && x > 0);
    return MPI_Finalize();
}
