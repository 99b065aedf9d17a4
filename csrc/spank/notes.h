/* A note in the spool for each step that will get a record, from the step's begin until the record exists. It holds
   what is known without asking anybody. `mpicoloc slurm close` and `settle` read it (mpicoloc/slurm/records.py). */
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

/* Write a note completely or not at all; one with an end replaces the one before. Returns 0 or an errno; ETIMEDOUT
   after a second, as a file system that hangs must not hold up the step. The note may then still be written later. */
int mn_write(const char *spool, const struct mn_note *note);

/* 1 if there is a note of any step of the job, or the mark that `mpicoloc slurm close` leaves when a step of a job
   without a script ends. The folder of notes is small; the spool has the files of all jobs. */
int mn_has(const char *spool, uint32_t job);

#endif
