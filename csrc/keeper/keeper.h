/* The keeper, and the Python programs that it starts to read the job's shared memory. */
#ifndef MPICOLOC_KEEPER_H
#define MPICOLOC_KEEPER_H

#include "common/mpicoloc.h"

#include <sys/types.h>

/* writer.c: run `python -m module key [option]`. Its stderr goes to the job's file `log`, or nowhere if that is
   NULL. is_idle: it only gets time that no other process wants. -1: it cannot be started. */
pid_t mc_writer_start(const char *python, const char *module, const char *key, const char *option, int is_idle);
/* The same, and wait until it ends. Returns its exit code, or the negative number of the signal that killed it. If
   it takes too long it is killed: MC_WRITER_LATE. */
int mc_writer_run(const char *python, const char *module, const char *key, const char *option);
enum { MC_WRITER_LATE = 256, MC_WRITER_S = 60 };
/* Remove what was inherited from a rank: a program would believe that it is one. Call it before there are threads. */
void mc_writer_clean_environment(void);

/* checkpoint.c: now and then this node's part of the profile is written to a file, in case the node dies. */
typedef struct mc_checkpoint {
    pid_t pid; /* the one that is being written; 0: none */
    uint64_t interval_ns, t_next;
} mc_checkpoint;

void mc_checkpoint_init(mc_checkpoint *checkpoint, uint64_t now);
void mc_checkpoint_step(mc_checkpoint *checkpoint, const char *python, const char *key, uint64_t now);
/* Write no more; does not wait for the one that is being written. */
void mc_checkpoint_stop(mc_checkpoint *checkpoint);
/* Wait for it. */
void mc_checkpoint_end(mc_checkpoint *checkpoint);
/* Remove the file of the node with this first rank, and the folder if it is empty then. */
void mc_checkpoint_remove(const mc_segment *first);

typedef struct mc_kept_rank {
    mc_segment *segment;
    int world_rank, pidfd, alive;
} mc_kept_rank;

/* keeper.c: what the keeper knows of its job. */
typedef struct mc_keeper {
    const char *key, *python;
    mc_node *node;
    int n_ranks, n_alive, n_finalizing, n_final, local_size, mode, tried, has_agent;
    int is_settled; /* nothing changes any more */
    int is_put_away;
    int is_owed;               /* another attempt at the profile follows when the ranks have ended */
    uint64_t t_start, outcome; /* of the last attempt, MC_PROFILE_... */
    mc_checkpoint checkpoint;
    char complaint[MC_COMPLAINT_LEN];
    mc_kept_rank ranks[MC_N_NODE_RANKS];
} mc_keeper;

/* files.c: make files again that somebody has deleted while the job ran: readers need them. */
void mc_files_restore(mc_keeper *k);
/* Make a node file if the agent could not: it tells the profile why. */
void mc_files_make_node(const mc_keeper *k);
/* Remove all files. Before the end, leave those that ranks and coordinator still write for each other. */
void mc_files_remove(mc_keeper *k, int is_end);
/* Read what the profile's writer has printed on stderr. */
void mc_files_read_log(const mc_keeper *k, char *complaint, size_t size);

#endif
