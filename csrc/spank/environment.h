/* The environment of a task. Some variables make mpicoloc measure the task. Jobs that a measured job submits must not
   inherit these variables. Others make the task's MPI library use the job's service level. */
#ifndef MPICOLOC_SPANK_ENVIRONMENT_H
#define MPICOLOC_SPANK_ENVIRONMENT_H

#include <slurm/spank.h>

/* Remove the variables that the plugin gave to the script or step that started this task. Variables that the user has
   set stay. */
void mt_forget(spank_t spank);

/* Preload a library before the user's own libraries, unless one of ours is already among them. */
void mt_preload(spank_t spank, const char *library);

/* Set MPICOLOC_<name>, unless the user has set it. */
void mt_set(spank_t spank, const char *name, const char *value);

/* Set the service-level variables listed in FOLDER/<user>/<job name>, which has one NAME=VALUE per line. Variables that
   the user has set stay. If there is no such file, the job has no level. `mpicoloc qos --slurm` writes these files. */
void ml_set(spank_t spank, const char *folder);

/* Remove the variables that `ml_set` gave to the script or step that started this task. */
void ml_forget(spank_t spank);

#endif
