/* Processes that come and go: the ranks start more (`spawn`), or two of them connect by a port (`connect`). */
#include <mpi.h>
#include <string.h>

void conf_mark(const char *name, int tries);

static int buffer[64], rank, size;

static void be_child(MPI_Comm parent)
{
    int n;
    MPI_Comm_remote_size(parent, &n);
    for (int i = 0; i < n; i++)
        MPI_Recv(buffer, 64, MPI_INT, i, 1, parent, MPI_STATUS_IGNORE);
    MPI_Send(buffer, 2, MPI_INT, 0, 2, parent);
    MPI_Comm_disconnect(&parent);
}

static void meet(MPI_Comm child)
{
    MPI_Send(buffer, 3, MPI_INT, 0, 1, child);
    if (rank == 0)
        MPI_Recv(buffer, 64, MPI_INT, MPI_ANY_SOURCE, 2, child, MPI_STATUS_IGNORE);
    MPI_Comm_disconnect(&child);
}

static void spawn(char *program)
{
    char *arguments[] = {"child", NULL};
    char **all_arguments[] = {arguments};
    int one = 1;
    MPI_Info info = MPI_INFO_NULL;
    MPI_Comm child;
    MPI_Comm_spawn(program, arguments, 1, info, 0, MPI_COMM_WORLD, &child, MPI_ERRCODES_IGNORE);
    meet(child);
    MPI_Comm_spawn_multiple(1, &program, all_arguments, &one, &info, 0, MPI_COMM_WORLD, &child, MPI_ERRCODES_IGNORE);
    meet(child);
}

static void connect_two(void)
{
    char port[MPI_MAX_PORT_NAME];
    MPI_Comm other;
    if (rank == 0) {
        MPI_Open_port(MPI_INFO_NULL, port);
        MPI_Send(port, MPI_MAX_PORT_NAME, MPI_CHAR, 1, 3, MPI_COMM_WORLD);
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &other);
        MPI_Send(buffer, 5, MPI_INT, 0, 4, other);
        MPI_Comm_disconnect(&other);
        MPI_Close_port(port);
    } else if (rank == 1) {
        MPI_Recv(port, MPI_MAX_PORT_NAME, MPI_CHAR, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &other);
        MPI_Recv(buffer, 64, MPI_INT, 0, 4, other, MPI_STATUS_IGNORE);
        MPI_Comm_disconnect(&other);
    }
}

int main(int argc, char **argv)
{
    MPI_Comm parent;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) {
        be_child(parent);
    } else {
        conf_mark("start", 0);
        if (argc > 1 && strcmp(argv[1], "spawn") == 0)
            spawn(argv[0]);
        else
            connect_two();
        conf_mark("end", MPI_MAX_PORT_NAME);
    }
    MPI_Finalize();
    return 0;
}
