/* The application's world, and what happens where MPI begins and ends: in MPI_Init, in sessions, in MPI_Finalize. */
#ifndef MPICOLOC_WORLD_H
#define MPICOLOC_WORLD_H

#include "guest/mpi/app_world.h"
#include "guest/mpi/handles.h"

/* Called by the wrappers of every language; each acts once. */
void mc_before_init(void);
void mc_after_init(void);
void mc_before_finalize(void);
void mc_before_abort(void);

/* sessions.c: a program may have sessions instead of MPI_Init, or both. */
void mc_before_session_init(void);
void mc_after_session_init(void);
void mc_before_session_finalize(void);
void mc_after_session_finalize(void);
void mc_before_comm_from_group(mc_handles group);
/* Exclude the coordinators from a group that a session gave, or from the size in an info object. */
void mc_hide_in_group(mc_handles group);
void mc_hide_in_info(mc_handles info);

/* attributes.c: free the application's world when MPI_Finalize would delete the attributes of MPI_COMM_WORLD. */
void mc_end_world_with_self(void);

/* Shared by world.c and sessions.c. */
int mc_is_ours(void);             /* 0: recording is impossible here, and the user was told why */
int mc_is_world_open(void);       /* between MPI_Init and MPI_Finalize */
int mc_begin(MPI_Comm world);     /* record this job, whose ranks are those of `world`; 0: that was done before */
int mc_end(void);                 /* stop recording and wait for the profile; 0: nothing was recorded */
int mc_is_over(void);             /* recording has ended */
void mc_say_goodbye(void);        /* let the sleeping coordinators see that an unrecorded job ends */
MPI_Comm mc_split(MPI_Comm real); /* the world without coordinators, or MPI_COMM_NULL */
MPI_Comm mc_first_real(void);     /* the first real world that the coordinators joined */
void mc_close_own_session(void);
int mc_has_session(void); /* the application has a session open */

/* Size of the real world with its coordinators, 0: there are none; and which of its ranks are the application's. */
extern int mc_real_size, mc_app_size, *mc_app_ranks;

/* With a swapped world, replace the function at this address by one that is called with MPI_COMM_WORLD. */
void mc_errhandler_given(void *function);

#endif
