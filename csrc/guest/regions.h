#ifndef MPICOLOC_REGIONS_H
#define MPICOLOC_REGIONS_H

#include "guest/hooks.h"

#include <stdarg.h>

/* Call it inside MPI_Pcontrol, between mc_enter and mc_leave. Other levels than ours are ignored. */
void mc_pcontrol(mc_frame *frame, int level, va_list arguments);

/* The same in Fortran, where there is only a level. */
void mc_pcontrol_level(mc_frame *frame, int level);

#endif
