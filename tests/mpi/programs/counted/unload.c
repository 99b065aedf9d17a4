/* Two libraries, of which each is loaded, passed often, and unloaded: the next one may get the same addresses. */
#include "hot.h"

#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>

static uint64_t use(const char *path, uint64_t x, int n)
{
    uint64_t (*work)(uint64_t, int) = NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        printf("%s\n", dlerror());
        return 0;
    }
    *(void **)&work = dlsym(library, "library_work");
    x = work(x, n);
    dlclose(library);
    return x;
}

int main(int argc, char **argv)
{
    uint64_t sum = 1;
    MPI_Init(&argc, &argv);
    for (int i = 0; argc > 2 && i < 200; i++)
        sum = scramble(use(argv[1 + i % 2], sum, 60 + i % 7 * 60), 2000);
    printf("sum %llu\n", (unsigned long long)sum);
    MPI_Finalize();
    return 0;
}
