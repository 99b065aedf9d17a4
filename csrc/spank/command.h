/* Commands that the Slurm plugin starts at the end of a step or job. */
#ifndef MPICOLOC_SPANK_COMMAND_H
#define MPICOLOC_SPANK_COMMAND_H

#include <sys/types.h>

/* A test has less time. */
#ifndef CLOSING_LIMIT_S
#define CLOSING_LIMIT_S 20
#endif

/* Waits CLOSING_LIMIT_S at most, then kills the process group of `pid`. Returns its exit code, -1 if it had none. */
int mr_wait(pid_t pid);

/* Run a program with arguments in a bare environment, no longer than that. What it says on its standard error goes into
   the log of Slurm, line by line. Returns as mr_wait does. */
int mr_run(char *const arguments[]);

#endif
