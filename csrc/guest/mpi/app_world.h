/* The application's world, which under `wrap` differs from the real one. */
#ifndef MPICOLOC_APP_WORLD_H
#define MPICOLOC_APP_WORLD_H

#include "guest/mpi/real.h"

/* 1 under `wrap`: the real world contains coordinators, which the application must never see. */
extern int mc_is_swapped;
extern int mc_has_begun; /* MPI_Init or MPI_Session_init was called */
extern MPI_Comm mc_app_world;

void mc_begin_partitioned(void); /* Open MPI: let the coordinator end the job, whose ranks would wait forever */

#ifdef MC_HAS_FORTRAN
/* Both worlds as Fortran integers, filled by mc_after_init; -1 before. */
extern MPI_Fint mc_f_world, mc_f_app_world;
#endif

static inline int mc_is_world(MPI_Comm comm)
{
    return __builtin_expect(mc_is_swapped, 0) && comm == mc_known.world;
}

static inline MPI_Comm mc_world(MPI_Comm comm)
{
    return mc_is_world(comm) ? mc_app_world : comm;
}

#endif
