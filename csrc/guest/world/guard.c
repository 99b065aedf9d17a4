/* Guard against the wrong MPI family. If a shim is preloaded into a program of another family, it would truncate the
   handles of that family. So the shim restarts such a program before main, without preloading itself. */
#define _GNU_SOURCE
#include "guest/hooks.h"
#include "guest/mpi/real.h"
#include "guest/world/launch.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* 0 for programs that load MPI later (Python). For such programs, mc_library_fits switches recording off. */
static int is_of_another_family(void)
{
    return dlsym(RTLD_NEXT, "PMPI_Init") != NULL &&
           (dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world") != NULL) != MC_IS_OPEN_MPI;
}

/* Remove this library from LD_PRELOAD. Returns 0 if the library was not there, so that a program is restarted at most
   once. */
static int leave_preload(const char *own_path)
{
    const char *present = getenv("LD_PRELOAD");
    char *rest = present ? strdup(present) : NULL, *kept = present ? calloc(1, strlen(present) + 2) : NULL;
    int n_left_out = 0;
    if (rest && kept) {
        char *at = NULL;
        for (char *entry = strtok_r(rest, " :", &at); entry; entry = strtok_r(NULL, " :", &at)) {
            if (strcmp(entry, own_path) == 0) {
                n_left_out++;
                continue;
            }
            if (kept[0])
                strcat(kept, ":");
            strcat(kept, entry);
        }
    }
    int ok = n_left_out && (kept[0] ? setenv("LD_PRELOAD", kept, 1) : unsetenv("LD_PRELOAD")) == 0;
    free(rest);
    free(kept);
    return ok;
}

/* Under `wrap` the launcher is of the wrong family too, so preloading another shim would not help. */
static void advise(const char *own_path, const char *program)
{
    Dl_info mpi;
    if (mc_is_wrapped() && dladdr(dlsym(RTLD_NEXT, "PMPI_Init"), &mpi) && mpi.dli_fname)
        fprintf(stderr,
                "mpicoloc: %s uses %s, but the job was started for another MPI (%s); it runs without mpicoloc: name "
                "the mpirun that belongs to its MPI, `mpicoloc run --mpirun PATH ...`\n",
                program, mpi.dli_fname, MC_IS_OPEN_MPI ? "Open MPI" : "MPICH");
    else
        fprintf(stderr,
                "mpicoloc: %s is for another MPI than this program, which runs without it: preload the library that "
                "`mpicoloc preload %s` prints\n",
                own_path, program);
}

__attribute__((constructor)) static void refuse_another_family(int n_arguments, char **arguments, char **environment)
{
    Dl_info own;
    (void)n_arguments, (void)environment;
    if (!is_of_another_family() || !dladdr((void *)&refuse_another_family, &own) || !own.dli_fname)
        return;
    if (!leave_preload(own.dli_fname))
        return;
    if (mc_is_node_first())
        advise(own.dli_fname, arguments[0]);
    unsetenv("MPICOLOC_KEY");
    execv("/proc/self/exe", arguments);
}
