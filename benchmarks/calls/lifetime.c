/* A run of a wanted number of calls, from many places and of many sizes; it tells when it was where.

       lifetime N_CALLS

   Rank 0 prints: the monotonic clock after MPI_Init; seconds in MPI_Init, in the loop and in MPI_Finalize; and the bytes on disk
   of the files named *.seg in MPICOLOC_SHM_DIR just before MPI_Finalize, all ranks of the node together. */
#define _GNU_SOURCE
#include <mpi.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { MAX_BYTES = 1 << 15, N_SIZES = 16 };

static char from[MAX_BYTES], to[MAX_BYTES];

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Each use is a call site of its own. */
#define CALL \
    if (i == n) \
        return; \
    size = 1 << (i++ % N_SIZES); \
    MPI_Sendrecv(from, i % 997 ? 8 : size, MPI_BYTE, me, 0, to, MAX_BYTES, MPI_BYTE, me, 0, MPI_COMM_WORLD, \
                 MPI_STATUS_IGNORE);
#define CALLS4 CALL CALL CALL CALL
#define CALLS16 CALLS4 CALLS4 CALLS4 CALLS4
#define CALLS64 CALLS16 CALLS16 CALLS16 CALLS16
#define CALLS256 CALLS64 CALLS64 CALLS64 CALLS64

static void loop(long n, int me)
{
    long i = 0;
    int size;
    for (;;) {
        CALLS256 CALLS256 CALLS256 CALLS256
    }
}

static long long segment_bytes(void)
{
    const char *name = getenv("MPICOLOC_SHM_DIR");
    DIR *dir = name ? opendir(name) : NULL;
    struct dirent *entry;
    struct stat status;
    long long sum = 0;
    while (dir && (entry = readdir(dir)))
        if (strstr(entry->d_name, ".seg") && fstatat(dirfd(dir), entry->d_name, &status, 0) == 0)
            sum += (long long)status.st_blocks * 512;
    if (dir)
        closedir(dir);
    return sum;
}

int main(int argc, char **argv)
{
    int me;
    double t_main = now_s();
    MPI_Init(&argc, &argv);
    double t_init = now_s();
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    loop(argc > 1 ? atol(argv[1]) : 0, me);
    MPI_Barrier(MPI_COMM_WORLD);
    double t_loop = now_s();
    long long bytes = segment_bytes();
    MPI_Barrier(MPI_COMM_WORLD);
    double t_before = now_s();
    MPI_Finalize();
    if (me == 0)
        printf("init_end %.6f init %.6f loop %.6f finalize %.6f segments %lld\n", t_init, t_init - t_main,
               t_loop - t_init, now_s() - t_before, bytes);
    return 0;
}
