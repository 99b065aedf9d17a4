/* Notes in the spool: one for each step that will get a record, from the step's start until the record exists. A note
   holds the facts that are known without a query. `mpicoloc slurm close` and `settle` read it
   (mpicoloc/slurm/records.py). */
#ifndef MPICOLOC_SPANK_NOTES_H
#define MPICOLOC_SPANK_NOTES_H

#include <stdint.h>
#include <time.h>

struct mn_note {
    uint32_t job, uid;
    uint32_t n_nodes, n_cpus;     /* number of nodes of the step; number of its processors on this node */
    char step[16];                /* the step's number, "batch" or "interactive" */
    struct timespec begun, ended; /* tv_sec 0: not yet */
};

/* Write a note completely or not at all. A note with an end replaces the earlier note. Returns 0 or an errno. A hanging
   file system must not hold up the step, so this function returns ETIMEDOUT after a second. The note may then still be
   written later. */
int mn_write(const char *spool, const struct mn_note *note);

/* 1 if there is a note of any step of the job, or the mark that `mpicoloc slurm close` leaves when a step of a job
   without a script ends. Searches only the small folder of notes: the spool itself has the files of all jobs. */
int mn_has(const char *spool, uint32_t job);

#endif
