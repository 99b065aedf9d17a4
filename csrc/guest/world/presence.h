/* Check that every rank of the node has this library. In MPI_Init the library makes collective calls, which would wait
   forever for a rank without the library. */
#ifndef MPICOLOC_PRESENCE_H
#define MPICOLOC_PRESENCE_H

/* Leave a file for the other ranks. Call this before the real MPI_Init, from which no rank returns until all have
   entered it. */
void mc_presence_tell(void);

/* Call this after MPI_Init. Returns 0 if a rank of this node has left no file; the first rank with a file reports that
   to the user. Returns 1 if all ranks have left files, or if this cannot be known. */
int mc_is_everywhere(void);

/* After mc_is_everywhere: 1 if the ranks seen on this node are the whole world of n_ranks. */
int mc_is_launchers_world(int n_ranks);

/* Remove the file, when no rank looks for it any more. */
void mc_presence_end(void);

/* Call these before the first and after the last open session of a process. The first function waits, within a limit,
   until every process of the node has ended its earlier sessions. MPICH gives its shared memory the same name each
   time, so a process that opens it too early waits forever or finds old contents. */
void mc_presence_begin_sessions(void);
void mc_presence_end_sessions(void);

#endif
