/* Persistent requests of a program that has sessions and no MPI_COMM_WORLD (MPI 4; before, the world). */
#include <mpi.h>
#include <stdio.h>

static void to_itself(MPI_Comm comm)
{
    int rank, given, taken = -1;
    MPI_Request requests[2];
    MPI_Comm_rank(comm, &rank);
    given = rank + 10;
    MPI_Send_init(&given, 1, MPI_INT, rank, 0, comm, &requests[0]);
    MPI_Recv_init(&taken, 1, MPI_INT, rank, 0, comm, &requests[1]);
    MPI_Startall(2, requests);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    printf("rank %d: %d\n", rank, taken);
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
}

int main(void)
{
#if MPI_VERSION >= 4
    MPI_Session session;
    MPI_Group group;
    MPI_Comm comm;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "test", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    to_itself(comm);
    MPI_Comm_free(&comm);
    MPI_Group_free(&group);
    MPI_Session_finalize(&session);
#else
    MPI_Init(NULL, NULL);
    to_itself(MPI_COMM_WORLD);
    MPI_Finalize();
#endif
    return 0;
}
