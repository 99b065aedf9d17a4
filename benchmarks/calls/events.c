/* Preloaded into an MPI program: appends to EVENTS_FILE when rank 0 begins the MPI calls named in EVENTS_CALLS, as 64-bit
   nanoseconds of CLOCK_MONOTONIC.

   gcc -O2 -shared -fPIC -o libevents.so events.c -ldl
   EVENTS_FILE=/tmp/events EVENTS_CALLS=MPI_Waitall LD_PRELOAD=./libevents.so mpirun -n 2 ./program

   All wrapped functions take integers and pointers only, so twelve longs carry the arguments of each. C and Fortran are
   wrapped both: Open MPI's mpi_send_ does not go through MPI_Send. Calls that poll (MPI_Test, MPI_Iprobe, ...) are no
   progress and are left out. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int file = -1;
static const char *wanted;

__attribute__((constructor)) static void events_open(void)
{
    const char *path = getenv("EVENTS_FILE"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    wanted = getenv("EVENTS_CALLS");
    if (rank == NULL)
        rank = getenv("PMI_RANK");
    if (path != NULL && wanted != NULL && rank != NULL && strcmp(rank, "0") == 0)
        file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
}

static int is_wanted(const char *name)
{
    size_t length = strlen(name);
    for (const char *at = file < 0 ? NULL : wanted; at != NULL && (at = strstr(at, name)) != NULL; at += length)
        if ((at == wanted || at[-1] == ',') && (at[length] == ',' || at[length] == '\0'))
            return 1;
    return 0;
}

static void event_add(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t now_ns = now.tv_sec * 1000000000L + now.tv_nsec;
    if (write(file, &now_ns, sizeof now_ns) != sizeof now_ns)
        abort();
}

typedef long function(long, long, long, long, long, long, long, long, long, long, long, long);

#define WRAP(symbol, name) \
    long symbol(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, long k, long l) \
    { \
        static function *next; \
        static int counted; \
        if (next == NULL) { \
            counted = is_wanted(name); \
            next = (function *)dlsym(RTLD_NEXT, #symbol); \
        } \
        if (counted) \
            event_add(); \
        return next(a, b, c, d, e, f, g, h, i, j, k, l); \
    }
/* Behind a library that calls P##c_name for what it has caught, that is all that comes here. */
#define BOTH(c_name, fortran_name) \
    WRAP(c_name, #c_name) \
    WRAP(P##c_name, #c_name) \
    WRAP(fortran_name, #c_name)

BOTH(MPI_Sendrecv, mpi_sendrecv_)
BOTH(MPI_Waitall, mpi_waitall_)
BOTH(MPI_Allreduce, mpi_allreduce_)
BOTH(MPI_Allgatherv, mpi_allgatherv_)
