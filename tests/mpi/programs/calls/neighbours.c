/* Neighbourhood collectives with types of their own per neighbour: a ring, 2 doubles to the left, 3 ints to the
   right. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int rank, size, periodic = 1, counts_out[2] = {2, 3}, counts_in[2] = {3, 2};
    struct {
        double to_left[2], from_right[2];
        int to_right[3], from_left[3];
    } all = {.to_left = {1, 2}, .to_right = {3, 4, 5}};
    MPI_Aint out[2] = {(char *)all.to_left - (char *)&all, (char *)all.to_right - (char *)&all};
    MPI_Aint in[2] = {(char *)all.from_left - (char *)&all, (char *)all.from_right - (char *)&all};
    MPI_Datatype types_out[2] = {MPI_DOUBLE, MPI_INT}, types_in[2] = {MPI_INT, MPI_DOUBLE};
    MPI_Comm ring;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &periodic, 0, &ring);
    MPI_Comm_rank(ring, &rank);
    MPI_Neighbor_alltoallw(&all, counts_out, out, types_out, &all, counts_in, in, types_in, ring);
    printf("rank %d: %d %g\n", rank, all.from_left[2], all.from_right[1]);
    MPI_Comm_free(&ring);
    MPI_Finalize();
    return 0;
}
