/* A rank forks, and the child calls MPI_Finalize, as exit handlers of language bindings do. */
#include <mpi.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int n_arguments, char **arguments)
{
    int status = 0;
    MPI_Init(&n_arguments, &arguments);
    pid_t child = fork();
    if (child == 0) {
        MPI_Finalize();
        _exit(3);
    }
    waitpid(child, &status, 0);
    return MPI_Finalize();
}
