/* The least that a shim can do for the calls of micro.c: what mpicoloc's cost is compared with.

   -DFLOOR_COUNT: a counter. -DFLOOR_CLOCK: two readings of CLOCK_MONOTONIC, a counter and a sum. -DFLOOR_TSC: the same with
   the processor's time stamp counter. No thread safety, no depth guard, no call sites, no sizes. */
#include <mpi.h>

#include <stdio.h>
#include <time.h>
#if defined FLOOR_TSC
#include <x86intrin.h>
#endif

typedef struct {
    unsigned long long n, time;
} row;

#if defined FLOOR_TSC
static inline unsigned long long stamp(void)
{
    return __rdtsc();
}
#elif defined FLOOR_CLOCK
static inline unsigned long long stamp(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (unsigned long long)now.tv_sec * 1000000000u + (unsigned long long)now.tv_nsec;
}
#else
static inline unsigned long long stamp(void)
{
    return 0;
}
#endif

/* volatile: the sums are the work that is timed, and nobody reads them */
#define SHIM(name, params, args) \
    int name params \
    { \
        static volatile row r; \
        unsigned long long begin = stamp(); \
        int status = P##name args; \
        r.n++; \
        r.time += stamp() - begin; \
        return status; \
    }

SHIM(MPI_Comm_rank, (MPI_Comm c, int *r_), (c, r_))
SHIM(MPI_Iprobe, (int s, int t, MPI_Comm c, int *f, MPI_Status *st), (s, t, c, f, st))
SHIM(MPI_Test, (MPI_Request * q, int *f, MPI_Status *s), (q, f, s))
SHIM(MPI_Testany, (int n, MPI_Request *q, int *i, int *f, MPI_Status *s), (n, q, i, f, s))
SHIM(MPI_Waitall, (int n, MPI_Request *q, MPI_Status *s), (n, q, s))
SHIM(MPI_Send, (const void *b, int n, MPI_Datatype d, int p, int t, MPI_Comm c), (b, n, d, p, t, c))
SHIM(MPI_Recv, (void *b, int n, MPI_Datatype d, int p, int t, MPI_Comm c, MPI_Status *s), (b, n, d, p, t, c, s))
SHIM(MPI_Isend, (const void *b, int n, MPI_Datatype d, int p, int t, MPI_Comm c, MPI_Request *q), (b, n, d, p, t, c, q))
SHIM(MPI_Irecv, (void *b, int n, MPI_Datatype d, int p, int t, MPI_Comm c, MPI_Request *q), (b, n, d, p, t, c, q))
SHIM(MPI_Win_flush, (int p, MPI_Win w), (p, w))
SHIM(MPI_Put, (const void *b, int n, MPI_Datatype d, int p, MPI_Aint o, int m, MPI_Datatype e, MPI_Win w),
     (b, n, d, p, o, m, e, w))
SHIM(MPI_Get, (void *b, int n, MPI_Datatype d, int p, MPI_Aint o, int m, MPI_Datatype e, MPI_Win w),
     (b, n, d, p, o, m, e, w))
SHIM(MPI_Allreduce, (const void *a, void *b, int n, MPI_Datatype d, MPI_Op o, MPI_Comm c), (a, b, n, d, o, c))
