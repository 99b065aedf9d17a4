/* The environment of a task: what measures it, what a measured job passes on to jobs that it submits, and variables that make
   its MPI library use the job's service level. */
#ifndef MPICOLOC_SPANK_ENVIRONMENT_H
#define MPICOLOC_SPANK_ENVIRONMENT_H

#include <slurm/spank.h>

/* Remove what the plugin gave to the script or step that started this task. What the user set stays. */
void mt_forget(spank_t spank);

/* Preload a library in front of the user's own, unless that is one of ours already. */
void mt_preload(spank_t spank, const char *library);

/* Set MPICOLOC_<name>, unless the user has set it. */
void mt_set(spank_t spank, const char *name, const char *value);

/* Set the variables of service levels that FOLDER/<user>/<name of the job> has, one NAME=VALUE on a line; the user's own
   stay. No file: the job has no level. `mpicoloc qos --slurm` writes these files. */
void ml_set(spank_t spank, const char *folder);

/* Remove what `ml_set` gave to the script or step that started this task. */
void ml_forget(spank_t spank);

#endif
