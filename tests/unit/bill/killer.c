/* Preloaded under SQLite: kills the process at the n-th call that changes a file, half way through a write. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

static int left, is_torn;

/* From now on die at call n; torn: after the first half of its bytes, else before it. */
void killer_arm(int n, int torn)
{
    left = n;
    is_torn = torn;
}

static int is_last(void)
{
    return left > 0 && --left == 0;
}

static void die(void)
{
    kill(getpid(), SIGKILL);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define WRITE_AT(name, offset_t) \
    ssize_t name(int fd, const void *bytes, size_t n, offset_t at) \
    { \
        if (is_last()) { \
            if (is_torn) \
                (void)!NEXT(name)(fd, bytes, n / 2, at); \
            die(); \
        } \
        return NEXT(name)(fd, bytes, n, at); \
    }

WRITE_AT(pwrite, off_t)
WRITE_AT(pwrite64, off64_t)

ssize_t write(int fd, const void *bytes, size_t n)
{
    if (is_last()) {
        if (is_torn)
            (void)!NEXT(write)(fd, bytes, n / 2);
        die();
    }
    return NEXT(write)(fd, bytes, n);
}

#define BEFORE(type, name, arguments, ...) \
    type name arguments \
    { \
        if (is_last()) \
            die(); \
        return NEXT(name)(__VA_ARGS__); \
    }

BEFORE(int, fsync, (int fd), fd)
BEFORE(int, fdatasync, (int fd), fd)
BEFORE(int, ftruncate, (int fd, off_t n), fd, n)
BEFORE(int, ftruncate64, (int fd, off64_t n), fd, n)
BEFORE(int, unlink, (const char *path), path)
