/* A barrier on each of many communicators of some ranks, in any order, the first always rank 0, which alone prints
   them: a line of another rank could break one of its. */
#include "../ranks.h"

static unsigned state = 1;

static int draw(int n)
{
    state = state * 1103515245u + 12345u;
    return (int)(state >> 16) % n;
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    for (int i = 0; i < atoi(argv[1]); i++) {
        int order[64], n = 4 + draw(size - 3), place = -1;
        for (int j = 0; j < size; j++)
            order[j] = j;
        for (int j = 1; j < size; j++) {
            int k = j + draw(size - j), other = order[k];
            order[k] = order[j];
            order[j] = other;
        }
        for (int j = 0; j < n; j++)
            if (order[j] == rank)
                place = j;
        MPI_Comm comm;
        MPI_Comm_split(MPI_COMM_WORLD, place >= 0 ? 1 : MPI_UNDEFINED, place, &comm);
        if (comm != MPI_COMM_NULL) {
            MPI_Barrier(comm);
            MPI_Comm_free(&comm);
        }
        for (int j = 0; rank == 0 && j < n; j++)
            printf(j == 0 ? "rank 0" : j < n - 1 ? " %d" : " %d\n", order[j]);
    }
    MPI_Finalize();
    return 0;
}
