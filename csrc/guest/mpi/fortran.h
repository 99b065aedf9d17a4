/* Fortran arguments as C values. Not part of the shim for the standard ABI, which has no Fortran interface. */
#ifndef MPICOLOC_FORTRAN_H
#define MPICOLOC_FORTRAN_H

#include "guest/mpi/app_world.h"

enum { MC_F_STATUS_SIZE = 16 }; /* at least Open MPI's MPI_STATUS_SIZE, which is sizeof(MPI_Status) in integers */

_Static_assert(sizeof(MPI_Status) <= MC_F_STATUS_SIZE * sizeof(MPI_Fint), "a status fits");

static inline int mc_f_is_world(const void *comm)
{
    return __builtin_expect(mc_is_swapped, 0) && *(const MPI_Fint *)comm == mc_f_world;
}

static inline void *mc_f_swap(void *comm)
{
    return mc_f_is_world(comm) ? &mc_f_app_world : comm;
}

/* Find a real Fortran function by its profiling name, or if there is none, the next definition of `name` after our
   wrapper. */
int mc_f_resolve(void *slot, const char *profiling_name, const char *name);

MPI_Datatype mc_f_type(const void *type);
MPI_Comm mc_f_comm(const void *comm);
MPI_Fint mc_f_of_comm(MPI_Comm comm);
MPI_Request mc_f_request(const void *request);
MPI_Op mc_f_op(const void *op);
MPI_Win mc_f_win(const void *win);
MPI_Message mc_f_message(const void *message);
int mc_f_is_in_place(const void *buffer);

/* 1 if the program passed MPI_STATUS_IGNORE or MPI_STATUSES_IGNORE. */
int mc_f_is_ignored(const void *status);

/* The status to pass to MPI: the program's status, or `own` if the program passed MPI_STATUS_IGNORE. It can be read
   after the call. */
void *mc_f_own_status(void *status, MPI_Fint *own);
const MPI_Status *mc_f_status(MPI_Status *out, const void *status);

#endif
