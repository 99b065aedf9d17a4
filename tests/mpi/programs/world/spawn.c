/* Parents spawn two children, merge with them, and all say what they see of the other side. */
#include "../ranks.h"

static void tell(const char *who, MPI_Comm other)
{
    MPI_Comm all;
    int n_others, n_all, one = 1, sum = 0, has_number;
    int *number;
    MPI_Comm_remote_size(other, &n_others);
    MPI_Intercomm_merge(other, who[0] == 'c', &all);
    MPI_Comm_size(all, &n_all);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, all);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &number, &has_number);
    printf("rank %d of %d %s: others %d all %d sum %d appnum %d\n", rank, size, who, n_others, n_all, sum,
           has_number ? *number : -1);
    fflush(stdout);
    MPI_Comm_free(&all);
    MPI_Comm_disconnect(&other);
}

int main(int argc, char **argv)
{
    MPI_Comm other;
    int errors[2] = {-1, -1};
    begin(&argc, &argv);
    MPI_Comm_get_parent(&other);
    if (other != MPI_COMM_NULL) {
        tell("child", other);
    } else {
        MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other, errors);
        tell("parent", other);
    }
    MPI_Finalize();
    return 0;
}
