/* A program that does not link MPI. Arguments: how it reaches MPI, and a library.
   handle: take each function from the handle of a libmpi, as language bindings do.
   lazy, deep, space: open a library that links MPI (world.c), plainly, with RTLD_DEEPBIND, or by dlmopen. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *take(void *library, const char *name)
{
    void *found = library ? dlsym(library, name) : NULL;
    if (!found) {
        fprintf(stderr, "no %s: %s\n", name, dlerror());
        exit(2);
    }
    return found;
}

/* Handles are addresses in Open MPI, numbers in MPICH. */
static void *known(void *library, const char *symbol, uintptr_t number)
{
    void *found = dlsym(library, symbol);
    return found ? found : (void *)number;
}

static int use_handle(const char *path)
{
    void *mpi = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    int (*init)(void *, void *) = (int (*)(void *, void *))take(mpi, "MPI_Init");
    int (*get_rank)(void *, int *) = (int (*)(void *, int *))take(mpi, "MPI_Comm_rank");
    int (*get_size)(void *, int *) = (int (*)(void *, int *))take(mpi, "MPI_Comm_size");
    int (*allreduce)(void *, void *, int, void *, void *, void *) =
        (int (*)(void *, void *, int, void *, void *, void *))take(mpi, "MPI_Allreduce");
    int (*finalize)(void) = (int (*)(void))take(mpi, "MPI_Finalize");
    void *world = known(mpi, "ompi_mpi_comm_world", 0x44000000), *sum = known(mpi, "ompi_mpi_op_sum", 0x58000003);
    int rank = -1, size = -1, one = 1, ones = 0;
    init(NULL, NULL);
    get_rank(world, &rank);
    get_size(world, &size);
    allreduce(&one, &ones, 1, known(mpi, "ompi_mpi_int", 0x4c000405), sum, world);
    printf("rank %d of %d, sum %d\n", rank, size, ones);
    return finalize();
}

int main(int n_arguments, char **arguments)
{
    if (n_arguments != 3)
        return 2;
    const char *how = arguments[1], *path = arguments[2];
    if (strcmp(how, "handle") == 0)
        return use_handle(path);
    int mode = RTLD_LAZY | (strcmp(how, "deep") == 0 ? RTLD_DEEPBIND : 0);
    void *library = strcmp(how, "space") == 0 ? dlmopen(LM_ID_NEWLM, path, RTLD_NOW) : dlopen(path, mode);
    int (*use_mpi)(void) = (int (*)(void))take(library, "use_mpi");
    return use_mpi();
}
