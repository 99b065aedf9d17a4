/* The keeper, and the Python programs that it starts to read the job's shared memory. */
#ifndef MPICOLOC_KEEPER_H
#define MPICOLOC_KEEPER_H

#include "common/mpicoloc.h"

#include <sys/types.h>

/* writer.c: start `python -m module key [option]`. If is_idle is 0, the program's stderr goes to the job's file `log`.
   If it is 1, the program runs only when no other process wants the processor. Returns -1 if the program cannot be
   started. */
pid_t mc_writer_start(const char *python, const char *module, const char *key, const char *option, int is_idle);
/* Start the program with is_idle 0, and wait for its end. Returns the program's exit code, or the negative number of
   the signal that killed the program. A program that runs for more than MC_WRITER_S seconds is killed, and the result
   is MC_WRITER_LATE. */
int mc_writer_run(const char *python, const char *module, const char *key, const char *option);
enum { MC_WRITER_LATE = 256, MC_WRITER_S = 60 };
/* Remove the MPI variables that the keeper inherited from a rank. With these variables, a program that the keeper
   starts would take itself for a rank. Call this before there are threads. */
void mc_writer_clean_environment(void);

/* checkpoint.c: write this node's part of the profile to a file at intervals, in case the node fails. */
typedef struct mc_checkpoint {
    pid_t pid; /* process that is writing a checkpoint; 0: none */
    uint64_t interval_ns, t_next;
} mc_checkpoint;

void mc_checkpoint_init(mc_checkpoint *checkpoint, uint64_t now);
void mc_checkpoint_step(mc_checkpoint *checkpoint, const char *python, const char *key, uint64_t now);
/* Write no more checkpoints; kill the process that is writing one, but do not wait for it. */
void mc_checkpoint_stop(mc_checkpoint *checkpoint);
/* Do the same as mc_checkpoint_stop, then wait for the killed process, but only for about a second. */
void mc_checkpoint_end(mc_checkpoint *checkpoint);
/* Remove the checkpoint of the node with this first rank, and then the folder if it is empty. */
void mc_checkpoint_remove(const mc_segment *first);

typedef struct mc_kept_rank {
    mc_segment *segment;
    int world_rank, pidfd, alive;
} mc_kept_rank;

/* keeper.c: state of the job, as the keeper sees it. */
typedef struct mc_keeper {
    const char *key, *python;
    mc_node *node;
    int n_ranks, n_alive, n_finalizing, n_final, local_size, mode, tried, has_agent;
    int is_settled; /* 1: all ranks wait or have ended, so their data are final */
    int is_put_away;
    int is_owed;               /* 1: try again to write the profile when the ranks have ended */
    uint64_t t_start, outcome; /* outcome of the last attempt to write it, MC_PROFILE_... */
    mc_checkpoint checkpoint;
    char complaint[MC_COMPLAINT_LEN];
    mc_kept_rank ranks[MC_N_NODE_RANKS];
} mc_keeper;

/* files.c: recreate files of the job that were deleted while the job ran: the profile's writer reads them. */
void mc_files_restore(mc_keeper *k);
/* If the agent has made no node file, make one. From this file the profile's writer learns the reason. */
void mc_files_make_node(const mc_keeper *k);
/* Remove the job's files. If is_end is 0, leave the files that the ranks and the coordinator still use. */
void mc_files_remove(mc_keeper *k, int is_end);
/* Read the complaint of the profile's writer, which is the last line that it printed on stderr. */
void mc_files_read_log(const mc_keeper *k, char *complaint, size_t size);

#endif
