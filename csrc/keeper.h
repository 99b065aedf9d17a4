/* What the keeper starts: Python programs that read the job's shared memory. */
#ifndef MPICOLOC_KEEPER_H
#define MPICOLOC_KEEPER_H

#include "mpicoloc.h"

#include <sys/types.h>

/* keeper_writer.c: run `python -m module key [option]`; its stderr goes to the file `log` of the job, or nowhere when
   that is NULL. An idle one gets only time that nobody wants. -1: it cannot be started. */
pid_t mc_writer_start(const char *python, const char *module, const char *key, const char *option, int is_idle);
/* 1: it ended well. One that takes too long is killed. */
int mc_writer_wait(pid_t pid);
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

#endif
