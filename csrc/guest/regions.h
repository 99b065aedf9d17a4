#ifndef MPICOLOC_REGIONS_H
#define MPICOLOC_REGIONS_H

#include "guest/hooks.h"

#include <stdarg.h>

/* Handle MPI_Pcontrol; call it between mc_enter and mc_leave. Levels other than ours are ignored. */
void mc_pcontrol(mc_frame *frame, int level, va_list arguments);

/* mc_pcontrol for Fortran, where MPI_Pcontrol has no further arguments. */
void mc_pcontrol_level(mc_frame *frame, int level);

#endif
