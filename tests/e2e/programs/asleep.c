/* Computes for argv[1] seconds and tells how long it was kept from it: the time in which the kernel saw this thread neither
   on a processor nor waiting for one, so asleep, although it never sleeps. Other processes on the machine do not count. */
#define _POSIX_C_SOURCE 200809L
#include "../../mpi/programs/ranks.h"
#include <time.h>

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Time on a processor, and ready for one; 0: this kernel does not tell. */
static double awake_s(void)
{
    unsigned long long on_ns = 0, ready_ns = 0;
    FILE *file = fopen("/proc/thread-self/schedstat", "r");
    int n = file ? fscanf(file, "%llu %llu", &on_ns, &ready_ns) : 0;
    if (file)
        fclose(file);
    return n == 2 ? (double)(on_ns + ready_ns) * 1e-9 : 0.0;
}

int main(int argc, char **argv)
{
    double begin_s = now_s(), x = 1.0;
    begin(&argc, &argv);
    double awake_before_s = awake_s(), from_s = now_s(), end_s = from_s + (argc > 1 ? atof(argv[1]) : 1.0);
    while (now_s() < end_s)
        for (int i = 0; i < 1000; i++)
            x = x * 1.0000001 + 1e-9;
    double all_s = now_s() - from_s, awake_spent_s = awake_s() - awake_before_s;
    say("%.6f s asleep of %.6f s, %.6f s since its begin%s", all_s - awake_spent_s, all_s, now_s() - begin_s,
        awake_before_s > 0.0 && x > 0.0 ? "" : " (not told)");
    MPI_Finalize();
    return 0;
}
