/* libmpicoloc-auto.so. The Slurm plugin preloads it into every process of a job, because it cannot know in advance
   which MPI a program uses. If a program has loaded an MPI library, libmpicoloc-auto.so restarts it before main, with
   the matching library first in LD_PRELOAD. In other programs it does nothing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

enum { N_PRELOAD = 16384 };

static int begins(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static int is_standard_abi(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size, (void)unused;
    return info->dlpi_name && begins(basename(info->dlpi_name), "libmpi_abi.so");
}

/* MPI family of the launcher. This family is used for interpreters, because they load MPI only later. */
static const char *family_of_launcher(const char *program)
{
    if (!begins(basename(program), "python"))
        return NULL;
    if (getenv("PMIX_RANK") || getenv("OMPI_COMM_WORLD_RANK"))
        return "openmpi";
    return getenv("PMI_RANK") || getenv("PMI_FD") ? "mpich" : NULL;
}

static const char *family_of(const char *program)
{
    if (!dlsym(RTLD_DEFAULT, "PMPI_Init"))
        return family_of_launcher(program);
    if (dl_iterate_phdr(is_standard_abi, NULL))
        return "abi";
    if (!dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world"))
        return "mpich";
    return dlsym(RTLD_DEFAULT, "PMPI_Send_c") ? "openmpi6" : "openmpi";
}

/* 1 if `wrap`, `run` or the user's own LD_PRELOAD has already chosen a library. */
static int is_decided(char **arguments)
{
    const char *preload = getenv("LD_PRELOAD"), *at = preload;
    if (!preload || getenv("MPICOLOC_KEY") || getenv("MPICOLOC_WRAPPED") || getenv("MPICOLOC_COORDINATOR"))
        return 1;
    while ((at = strstr(at, "libmpicoloc-"))) {
        if (!begins(at, "libmpicoloc-auto.so"))
            return 1;
        at++;
    }
    for (; *arguments; arguments++)
        if (begins(*arguments, "mpicoloc.") || strcmp(basename(*arguments), "mpicoloc") == 0)
            return 1;
    return 0;
}

/* Put the library of this family, from our own folder, at the front of LD_PRELOAD. */
static int preload_for(char text[N_PRELOAD], const char *own, const char *family)
{
    int n_folder = (int)(basename(own) - own);
    char library[PATH_MAX];
    int n = snprintf(library, sizeof library, "%.*slibmpicoloc-%s.so", n_folder, own, family);
    if (n_folder == 0 || n >= (int)sizeof library || access(library, R_OK) != 0)
        return 0;
    n = snprintf(text, N_PRELOAD, "%s:%s", library, getenv("LD_PRELOAD"));
    return n > 0 && n < N_PRELOAD;
}

__attribute__((constructor)) static void choose(int n_arguments, char **arguments, char **environment)
{
    char program[PATH_MAX] = "", preload[N_PRELOAD];
    Dl_info own;
    (void)environment;
    if (n_arguments < 1 || getauxval(AT_SECURE) || is_decided(arguments))
        return;
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    /* If the program was started through the loader, /proc/self/exe is the loader. */
    if (n <= 0 || n >= (ssize_t)sizeof program - 1 || begins(basename(program), "ld-"))
        return;
    const char *family = family_of(program);
    if (!family || !dladdr((void *)(uintptr_t)choose, &own) || !own.dli_fname)
        return;
    char *before = strdup(getenv("LD_PRELOAD"));
    if (before && preload_for(preload, own.dli_fname, family) && setenv("LD_PRELOAD", preload, 1) == 0) {
        execv(program, arguments);
        setenv("LD_PRELOAD", before, 1);
    }
    free(before);
}
