/* Is this library in every rank of the node? In MPI_Init its ranks call collective functions, where they would wait
   forever for a rank without it. */
#ifndef MPICOLOC_PRESENCE_H
#define MPICOLOC_PRESENCE_H

/* Before the real MPI_Init, from which no rank returns before all have entered it: leave a file for the other ranks. */
void mc_presence_tell(void);

/* After MPI_Init. 0: some rank of this node has left no file; the first rank that has one tells the user. 1: all
   have, or it cannot be known. */
int mc_is_everywhere(void);

/* After that. 1: the ranks that were seen on this node are all of a world of n_ranks. */
int mc_is_launchers_world(int n_ranks);

/* Remove the file, once no rank looks for it any more. */
void mc_presence_end(void);

/* Call these around all sessions of a process. The first waits, within a limit, until every process of the node has
   ended the sessions before. MPICH gives its shared memory the same name each time: a process that opens it too
   early waits forever, or finds old contents. */
void mc_presence_begin_sessions(void);
void mc_presence_end_sessions(void);

#endif
