/* Gives its host another name, $HOSTILE_HOST, where the system allows it; then a region for each argument. */
#define _GNU_SOURCE
#include "../../../mpicoloc/include/mpicoloc_app.h"
#include "../../mpi/programs/ranks.h"

#include <sched.h>
#include <unistd.h>

enum { HOST_LEN = 64, N_MESSAGES = 20 };

int main(int argc, char **argv)
{
    const char *host = getenv("HOSTILE_HOST");
    if (host && unshare(CLONE_NEWUTS) == 0 && sethostname(host, strnlen(host, HOST_LEN)) != 0)
        fputs("unnamed\n", stderr);
    char cell = 0;
    begin(&argc, &argv);
    for (int i = 1; i < argc; i++) {
        mpicoloc_begin(argv[i]);
        for (int k = 0; k < N_MESSAGES; k++)
            MPI_Sendrecv_replace(&cell, 1, MPI_BYTE, (rank + 1) % size, 0, (rank + size - 1) % size, 0, MPI_COMM_WORLD,
                                 MPI_STATUS_IGNORE);
        mpicoloc_end(argv[i]);
    }
    return MPI_Finalize();
}
