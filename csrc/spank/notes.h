/* A note in the spool of each step that is to have a record, from its begin until the record is there: what is known
   without asking anybody. `mpicoloc slurm close` and `settle` read it (mpicoloc/slurm/step_note.py). */
#ifndef MPICOLOC_SPANK_NOTES_H
#define MPICOLOC_SPANK_NOTES_H

#include <stdint.h>
#include <time.h>

struct mn_note {
    uint32_t job, uid;
    uint32_t n_nodes, n_cpus;     /* of the step; on this node */
    char step[16];                /* number, batch or interactive */
    struct timespec begun, ended; /* tv_sec 0: not yet */
};

/* Write it whole, or not at all; one with an end in the place of the one before. Returns 0 or an errno, ETIMEDOUT after
   a second: a file system that hangs does not hold the step for longer. Then it may still be written, however late. */
int mn_write(const char *spool, const struct mn_note *note);

/* Whether there is a note of any step of a job, or the mark that `mpicoloc slurm close` left at the end of a step of
   one without a script. The folder of notes is small; the spool has the files of all jobs. */
int mn_has(const char *spool, uint32_t job);

#endif
