/* Preloaded into a bare MPI program: writes down when rank 0 begins the MPI calls named in EVENTS_CALLS.

   gcc -O2 -shared -fPIC -o libevents.so events.c -ldl
   EVENTS_FILE=/dev/shm/events EVENTS_CALLS=MPI_Waitall LD_PRELOAD=./libevents.so mpirun -n 2 ./program

   All wrapped functions take integers and pointers only, so twelve longs carry the arguments of each. C and
   Fortran are wrapped both: Open MPI's mpi_send_ does not go through MPI_Send. Calls that poll (MPI_Test,
   MPI_Iprobe, ...) are no progress and are left out. When the file is full, every second time is dropped, and
   from then on only every second call is written down, and so on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define N_TIMES (1 << 18)

typedef struct event_file {
    uint64_t n_calls, every, n_times;
    int64_t time_ns[N_TIMES]; /* CLOCK_MONOTONIC */
} event_file;

static event_file *events;
static const char *wanted;

__attribute__((constructor)) static void events_open(void)
{
    const char *path = getenv("EVENTS_FILE"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    wanted = getenv("EVENTS_CALLS");
    if (rank == NULL)
        rank = getenv("PMI_RANK");
    if (path == NULL || wanted == NULL || rank == NULL || strcmp(rank, "0") != 0)
        return;
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof(event_file)) != 0)
        return;
    void *map = mmap(NULL, sizeof(event_file), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    events = map == MAP_FAILED ? NULL : map;
    if (events != NULL && events->every == 0)
        events->every = 1;
}

static int is_wanted(const char *name)
{
    size_t length = strlen(name);
    for (const char *at = wanted; at != NULL && (at = strstr(at, name)) != NULL; at += length)
        if ((at == wanted || at[-1] == ',') && (at[length] == ',' || at[length] == '\0'))
            return 1;
    return 0;
}

static void event_add(void)
{
    event_file *e = events;
    if (e->n_calls++ % e->every != 0)
        return;
    if (e->n_times == N_TIMES) {
        for (size_t i = 0; i < N_TIMES / 2; i++)
            e->time_ns[i] = e->time_ns[2 * i];
        e->n_times = N_TIMES / 2;
        e->every *= 2;
    }
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    e->time_ns[e->n_times++] = now.tv_sec * 1000000000L + now.tv_nsec;
}

typedef long function(long, long, long, long, long, long, long, long, long, long, long, long);

#define WRAP(symbol, name)                                                                                    \
    long symbol(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, long k, long l) \
    {                                                                                                         \
        static function *next;                                                                                \
        static int counted;                                                                                   \
        if (next == NULL) {                                                                                   \
            counted = events != NULL && is_wanted(name);                                                      \
            next = (function *)dlsym(RTLD_NEXT, #symbol);                                                     \
        }                                                                                                     \
        if (counted)                                                                                          \
            event_add();                                                                                      \
        return next(a, b, c, d, e, f, g, h, i, j, k, l);                                                      \
    }
/* Behind a library that calls P##c_name for what it has caught, that is all that comes here. */
#define BOTH(c_name, fortran_name)                                                                            \
    WRAP(c_name, #c_name)                                                                                     \
    WRAP(P##c_name, #c_name)                                                                                  \
    WRAP(fortran_name, #c_name)

BOTH(MPI_Send, mpi_send_)
BOTH(MPI_Recv, mpi_recv_)
BOTH(MPI_Sendrecv, mpi_sendrecv_)
BOTH(MPI_Isend, mpi_isend_)
BOTH(MPI_Irecv, mpi_irecv_)
BOTH(MPI_Wait, mpi_wait_)
BOTH(MPI_Waitall, mpi_waitall_)
BOTH(MPI_Barrier, mpi_barrier_)
BOTH(MPI_Bcast, mpi_bcast_)
BOTH(MPI_Reduce, mpi_reduce_)
BOTH(MPI_Allreduce, mpi_allreduce_)
BOTH(MPI_Allgather, mpi_allgather_)
BOTH(MPI_Allgatherv, mpi_allgatherv_)
BOTH(MPI_Alltoall, mpi_alltoall_)
BOTH(MPI_Alltoallv, mpi_alltoallv_)
BOTH(MPI_Win_fence, mpi_win_fence_)
