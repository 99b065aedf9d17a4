/* Rank r touches (r + 1) times argv[1] new pages and sleeps once for every ten of them, half of it in a thread. It also
   does so before MPI_Init and after MPI_Finalize. */
#include "../../mpi/programs/ranks.h"
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t n_pages;

static void *touch(void *unused)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    volatile char *pages = mmap(NULL, n_pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise((void *)pages, n_pages * page, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < n_pages; i++)
        pages[i * page] = 1;
    for (size_t i = 0; i < n_pages / 10; i++)
        usleep(50);
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    n_pages = 10 * strtoul(argv[1], NULL, 10);
    touch(NULL);
    begin(&argc, &argv);
    n_pages = (size_t)(rank + 1) * strtoul(argv[1], NULL, 10) / 2;
    touch(NULL);
    pthread_create(&thread, NULL, touch, NULL);
    pthread_join(thread, NULL);
    MPI_Finalize();
    touch(NULL);
    return 0;
}
