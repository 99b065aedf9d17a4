/* What a measured task has in its environment, and what a measured job hands on to others. */
#ifndef MPICOLOC_SPANK_TASK_H
#define MPICOLOC_SPANK_TASK_H

#include <slurm/spank.h>

/* Take out what the plugin gave to the script or step that this task was started from. The user's own stays. */
void mt_forget(spank_t spank);

/* Preload a library in front of what the user preloads, unless that is one of mpicoloc's already. */
void mt_preload(spank_t spank, const char *library);

/* Set MPICOLOC_<name>, unless the user has. */
void mt_set(spank_t spank, const char *name, const char *value);

#endif
