/* Whether this library is in every rank of the node. In MPI_Init its ranks call collective functions, and would wait
   for a rank without it for good. */
#ifndef MPICOLOC_PRESENCE_H
#define MPICOLOC_PRESENCE_H

/* Before the real MPI_Init, from which no rank returns before all have entered it: leave a file for the others. */
void mc_presence_tell(void);

/* After it. 0: some rank of this node has not told; the first of those that have says so to the user. 1 also where
   nothing can be known. */
int mc_is_everywhere(void);

/* Then: 1 if the ranks of this node that were seen are all of a world of so many. */
int mc_is_launchers_world(int n_ranks);

/* When no rank looks any more: remove the file. */
void mc_presence_end(void);

/* Around all sessions of a process. The first waits, but not for good, until every process of the node has ended those
   before: MPICH names its memory alike each time,
   and who opens it too early waits for good or finds what is left in it. */
void mc_presence_begin_sessions(void);
void mc_presence_end_sessions(void);

#endif
