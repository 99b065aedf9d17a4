/* Preloaded behind the library: rank 1 lacks what FAULT says, "file" or "memory"; FAULT=count: a line for each look into
   the shared-memory folder. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern void *__libc_realloc(void *memory, size_t n_bytes); /* dlsym(RTLD_NEXT) may call realloc itself */

static int is_wanted(const char *fault)
{
    const char *wanted = getenv("FAULT");
    return wanted != NULL && strcmp(wanted, fault) == 0;
}

static int is_hit(const char *fault)
{
    const char *rank = getenv("PMI_RANK");
    if (rank == NULL)
        rank = getenv("OMPI_COMM_WORLD_RANK");
    return is_wanted(fault) && rank != NULL && strcmp(rank, "1") == 0;
}

static int is_called_by_mpicoloc(void *site)
{
    Dl_info info;
    return dladdr(site, &info) != 0 && strstr(info.dli_fname, "libmpicoloc-") != NULL;
}

void *realloc(void *memory, size_t n_bytes)
{
    return is_hit("memory") && is_called_by_mpicoloc(__builtin_return_address(0)) ? NULL
                                                                                  : __libc_realloc(memory, n_bytes);
}

int open(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    int mode = va_arg(list, int);
    va_end(list);
    const char *folder = getenv("MPICOLOC_SHM_DIR");
    if (is_wanted("count") && folder != NULL && strcmp(path, folder) == 0)
        (void)!write(2, "look\n", 5);
    size_t n = strlen(path);
    if (is_hit("file") && n > 5 && strcmp(path + n - 5, ".here") == 0) {
        errno = ENFILE;
        return -1;
    }
    return openat(AT_FDCWD, path, flags, mode);
}
