/* What the environment and the ancestors of this process say about its job. */
#ifndef MPICOLOC_LAUNCH_H
#define MPICOLOC_LAUNCH_H

/* 1: mpicoloc.wrap started this rank, so coordinators share its world. The environment alone cannot say that: a job
   that the application starts with its own mpirun inherits it. */
int mc_is_wrapped(void);

/* 1 if this node has a coordinator of ours. */
int mc_has_coordinator(void);

/* 1: a rank that carries this library started this job, with its own mpirun. */
int mc_is_nested(void);

/* The launcher's process of this job: Hydra's proxy, else the topmost launcher among the ancestors of this process;
   0: none is visible. */
int mc_launcher_pid(void);

/* The key that the launcher gave this job; NULL: none, or it was given to another job. */
const char *mc_given_key(void);

/* Under wrap, before the real MPI_Init or MPI_Session_init, which waits for the coordinator: write into the file
   <key>.init what this rank begins, "init" or "session", and in which round. MPI may begin again after it has ended. */
void mc_announce(const char *how);
void mc_next_round(void);
void mc_announce_off(void); /* file <key>.off: a rank of this node has switched off */
/* File <key>.<what>, at which the coordinator ends the job: "past", a rank has a second MPI, which this library cannot
   see; "forked", a child of a rank is in MPI_Finalize; "partitioned", a rank waits for the coordinator. */
void mc_announce_trouble(const char *what);
int mc_is_announced(const char *how); /* by a process of this node, for this round */

/* Before MPI begins again: wait, within a limit, until every process of this node has ended the round before. */
void mc_await_others(void);

#endif
