// C++ with the C interface, threads and destructors after MPI_Finalize.
#include <mpi.h>

#include <cstdio>
#include <numeric>
#include <thread>
#include <vector>

struct Mpi {
    Mpi(int *argc, char ***argv)
    {
        int provided;
        MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided);
    }
    ~Mpi()
    {
        MPI_Finalize();
    }
};

int main(int argc, char **argv)
{
    Mpi mpi(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    std::vector<long> values(1000), sums(1000);
    std::thread([&] { std::iota(values.begin(), values.end(), rank); }).join();
    for (int i = 0; i < 5; i++)
        MPI_Allreduce(values.data(), sums.data(), 1000, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    std::printf("rank %d of %d: %ld\n", rank, size, sums[999]);
    return 0;
}
