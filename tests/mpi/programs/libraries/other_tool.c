/* A small profiler of another kind: counts some calls of a program by the names of MPI, and says at the end what it
   saw. Into a program it is linked, or it is preloaded. */
#include <mpi.h>
#include <stdio.h>

static int n_allreduce, n_send, n_recv, n_rank, rank, size;

int MPI_Init(int *argc, char ***argv)
{
    int status = PMPI_Init(argc, argv);
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    return status;
}

int MPI_Comm_rank(MPI_Comm comm, int *found)
{
    n_rank++;
    return PMPI_Comm_rank(comm, found);
}

int MPI_Allreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    n_allreduce++;
    return PMPI_Allreduce(from, to, count, type, op, comm);
}

int MPI_Send(const void *from, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm)
{
    n_send++;
    return PMPI_Send(from, count, type, to, tag, comm);
}

int MPI_Recv(void *to, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *status)
{
    n_recv++;
    return PMPI_Recv(to, count, type, from, tag, comm, status);
}

int MPI_Finalize(void)
{
    int sum = 0;
    PMPI_Reduce(&n_send, &sum, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    printf("rank %d: tool of %d saw %d allreduce, %d send, %d recv, %d rank, %d\n", rank, size, n_allreduce, n_send,
           n_recv, n_rank, sum);
    fflush(stdout);
    return PMPI_Finalize();
}
