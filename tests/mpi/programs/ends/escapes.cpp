// An error handler that leaves the MPI call which failed, by an exception (argv[1] "throw") or by longjmp.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <mpi.h>

namespace
{
bool by_throw;
jmp_buf before;

void leave(MPI_Comm *, int *code, ...)
{
    if (by_throw)
        throw *code;
    longjmp(before, 1);
}

// One call that fails; true if its handler came back here.
bool fail(int size)
{
    int value = 0;
    if (by_throw) {
        try {
            MPI_Send(&value, 1, MPI_INT, size, 0, MPI_COMM_WORLD);
        } catch (int) {
            return true;
        }
        return false;
    }
    if (setjmp(before) != 0)
        return true;
    MPI_Send(&value, 1, MPI_INT, size, 0, MPI_COMM_WORLD);
    return false;
}
} // namespace

int main(int argc, char **argv)
{
    int rank, size, sum = 0, n_left = 0;
    MPI_Errhandler handler;
    by_throw = argc > 1 && std::strcmp(argv[1], "throw") == 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_create_errhandler(leave, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    for (int i = 0; i < 20; i++) {
        n_left += fail(size);
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
    std::printf("rank %d: left %d times, sum %d\n", rank, n_left, sum);
    MPI_Errhandler_free(&handler);
    MPI_Finalize();
    return 0;
}
