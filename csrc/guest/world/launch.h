/* Facts about this process's job, from its environment and its ancestors. */
#ifndef MPICOLOC_LAUNCH_H
#define MPICOLOC_LAUNCH_H

/* 1 if mpicoloc.wrap started this rank, so that coordinators share its world. The environment alone does not show
   that, because a job that the application starts with its own mpirun inherits the environment. */
int mc_is_wrapped(void);

/* 1 if one of this job's coordinators is on this node. */
int mc_has_coordinator(void);

/* 1 if this job was started with mpirun by a rank of another job that has this library preloaded. */
int mc_is_nested(void);

/* Process ID of this job's launcher: Hydra's proxy, else the topmost launcher among this process's ancestors. 0: none
   is visible. */
int mc_launcher_pid(void);

/* The key that the launcher gave this job. NULL if there is no key, or if the key belongs to another job. */
const char *mc_given_key(void);

/* Under `wrap`, before the real MPI_Init or MPI_Session_init, which waits for the coordinator: write "init" or
   "session" and the round into the file <key>.init. A round is one use of MPI: sessions allow several in turn. */
void mc_announce(const char *how);
void mc_next_round(void);
void mc_announce_off(void); /* make the file <key>.off, by which a rank of this node says that it does not record */
/* Make the file <key>.<what>. When this file appears, the coordinator ends the job. "past": a rank has a second MPI,
   which this library cannot see. "forked": a child of a rank is in MPI_Finalize. "partitioned": a rank waits for the
   coordinator. */
void mc_announce_trouble(const char *what);
int mc_is_announced(const char *how); /* 1 if a process of this node has announced `how` for this round */

/* Before MPI begins again: wait, within a limit, until every process of this node has ended the previous round. */
void mc_await_others(void);

#endif
