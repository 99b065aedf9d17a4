/* A hostile neighbour: writes anything into the file argv[1], which it may write, for argv[2] seconds. What it writes
   is random, or near the truth: times of now, states and numbers as they stand elsewhere in the file. */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t state = 88172645463325252u;

static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static uint64_t lie(const uint64_t *words, size_t n, uint64_t now)
{
    switch (next() % 4) {
    case 0:
        return next();
    case 1:
        return now + next() % 400000000u; /* a pause that is to come */
    case 2:
        return words[next() % n];
    default:
        return next() % 5;
    }
}

int main(int argc, char **argv)
{
    struct stat status;
    int fd = argc > 2 ? open(argv[1], O_RDWR) : -1;
    if (fd < 0 || fstat(fd, &status) != 0)
        return 1;
    size_t n = (size_t)status.st_size / sizeof(uint64_t);
    uint64_t *words = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (words == MAP_FAILED)
        return 1;
    uint64_t end = now_ns() + (uint64_t)(atof(argv[2]) * 1e9), n_written = 0;
    for (uint64_t now = now_ns(); now < end; now = now_ns(), n_written += 20) {
        struct timespec nap = {0, 500000};
        for (int i = 0; i < 20; i++)
            words[next() % n] = lie(words, n, now);
        nanosleep(&nap, NULL);
    }
    printf("%llu\n", (unsigned long long)n_written);
    return 0;
}
