/* What the keeper starts: Python programs that read the job's shared memory. */
#ifndef MPICOLOC_KEEPER_H
#define MPICOLOC_KEEPER_H

#include "common/mpicoloc.h"

#include <sys/types.h>

/* keeper_writer.c: run `python -m module key [option]`; its stderr goes to the file `log` of the job, or nowhere when
   that is NULL. An idle one gets only time that nobody wants. -1: it cannot be started. */
pid_t mc_writer_start(const char *python, const char *module, const char *key, const char *option, int is_idle);
/* The same, and wait for its end: its exit code, or the signal that killed it as a negative number. One that takes too
   long is killed: MC_WRITER_LATE. */
int mc_writer_run(const char *python, const char *module, const char *key, const char *option);
enum { MC_WRITER_LATE = 256, MC_WRITER_S = 60 };
/* What is inherited from a rank would make a program take itself for one. Called before there are threads. */
void mc_writer_clean_environment(void);

/* keeper_checkpoint.c: now and then, the profile's part of this node goes to a file, in case the node dies. */
typedef struct mc_checkpoint {
    pid_t pid; /* of the one under way; 0: none */
    uint64_t interval_ns, t_next;
} mc_checkpoint;

void mc_checkpoint_init(mc_checkpoint *checkpoint, uint64_t now);
void mc_checkpoint_step(mc_checkpoint *checkpoint, const char *python, const char *key, uint64_t now);
/* None any more; does not wait for the one under way to be gone. */
void mc_checkpoint_stop(mc_checkpoint *checkpoint);
/* Waits for it. */
void mc_checkpoint_end(mc_checkpoint *checkpoint);
/* The file of the node whose first rank this is, and the folder if it was the last in it. */
void mc_checkpoint_remove(const mc_segment *first);

typedef struct mc_kept_rank {
    mc_segment *segment;
    int world_rank, pidfd, alive;
} mc_kept_rank;

/* keeper.c: what it knows of its job. */
typedef struct mc_keeper {
    const char *key, *python;
    mc_node *node;
    int n_ranks, n_alive, n_finalizing, n_final, local_size, mode, tried, has_agent;
    int is_settled; /* nothing is recorded any more */
    int is_put_away;
    int is_owed;               /* the profile is tried again when the ranks have ended */
    uint64_t t_start, outcome; /* of our own writing, MC_PROFILE_... */
    mc_checkpoint checkpoint;
    char complaint[MC_COMPLAINT_LEN];
    mc_kept_rank ranks[MC_N_NODE_RANKS];
} mc_keeper;

/* keeper_files.c: make those again that somebody has deleted while the job ran, for those who read them. */
void mc_files_restore(mc_keeper *k);
/* A node file where the agent could not make one: the profile says why. */
void mc_files_make_node(const mc_keeper *k);
/* All but, before the end, those that ranks and coordinator still write to each other. */
void mc_files_remove(mc_keeper *k, int is_end);
void mc_files_leave_board(void);
/* What the profile's writer had to say, from the file that it had as stderr. */
void mc_files_read_log(const mc_keeper *k, char *complaint, size_t size);

#endif
