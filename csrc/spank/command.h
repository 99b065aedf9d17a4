/* Commands that the Slurm plugin starts at the end of a step or job. */
#ifndef MPICOLOC_SPANK_COMMAND_H
#define MPICOLOC_SPANK_COMMAND_H

#include <sys/types.h>

/* A test waits less. */
#ifndef CLOSING_LIMIT_S
#define CLOSING_LIMIT_S 20
#endif

/* Wait for `pid`, but CLOSING_LIMIT_S at most: then kill its process group. Returns its exit code; -1: it had none. */
int mr_wait(pid_t pid);

/* Run a program with these arguments in a minimal environment, with the same limit. Its standard error goes to
   Slurm's log, line by line. Returns as mr_wait does. */
int mr_run(char *const arguments[]);

#endif
