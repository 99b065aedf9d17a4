/* Variables that make the MPI library of a job use its service level. `mpicoloc qos --slurm` writes them. */
#ifndef MPICOLOC_SPANK_LEVELS_H
#define MPICOLOC_SPANK_LEVELS_H

#include <slurm/spank.h>

/* Set the variables that FOLDER/<user>/<name of the job> has, one NAME=VALUE on a line; the user's own stay. No file:
   the job has no level. */
void ml_set(spank_t spank, const char *folder);

/* Remove what `ml_set` gave to the script or step that started this task. */
void ml_forget(spank_t spank);

#endif
