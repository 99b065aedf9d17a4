/* The application's world, and what happens in MPI_Init and MPI_Finalize. */
#ifndef MPICOLOC_WORLD_H
#define MPICOLOC_WORLD_H

#include "real.h"

/* Under wrap the real world holds coordinators too; the application must never see them. */
extern int mc_is_swapped;
extern MPI_Comm mc_app_world;

static inline int mc_is_world(MPI_Comm comm)
{
    return __builtin_expect(mc_is_swapped, 0) && comm == mc_known.world;
}

static inline MPI_Comm mc_world(MPI_Comm comm)
{
    return mc_is_world(comm) ? mc_app_world : comm;
}

/* Called by the wrappers of every language; each acts once. */
void mc_before_init(void);
void mc_after_init(void);
void mc_after_session_init(void);
void mc_before_finalize(void);
void mc_before_abort(void);

#ifdef MC_HAS_FORTRAN
/* Both worlds as Fortran integers, filled by mc_after_init; -1 before. */
extern MPI_Fint mc_f_world, mc_f_app_world;
#endif

#endif
