/* The environment of a measured task, and what a measured job passes on to jobs that it submits. */
#ifndef MPICOLOC_SPANK_TASK_H
#define MPICOLOC_SPANK_TASK_H

#include <slurm/spank.h>

/* Remove what the plugin gave to the script or step that started this task. What the user set stays. */
void mt_forget(spank_t spank);

/* Preload a library in front of the user's own, unless that is one of ours already. */
void mt_preload(spank_t spank, const char *library);

/* Set MPICOLOC_<name>, unless the user has set it. */
void mt_set(spank_t spank, const char *name, const char *value);

#endif
