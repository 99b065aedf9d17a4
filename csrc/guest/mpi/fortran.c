#define _GNU_SOURCE
#include "guest/mpi/fortran.h"

#include <dlfcn.h>
#include <string.h>

int mc_f_resolve(void *slot, const char *profiling_name, const char *name)
{
    if (mc_resolve(slot, profiling_name))
        return 1;
    void *found = dlsym(RTLD_NEXT, name);
    if (found == NULL)
        return 0;
    mc_set_pointer(slot, found);
    return 1;
}

/* Fortran's named constants are variables that are known by their addresses. The program may hold copies, which come
   first. */
static const void *constant(const void **cache, const char *name)
{
    const void *found = MC_POINTER(*cache);
    if (found == NULL) {
        found = dlsym(RTLD_DEFAULT, name);
        found = found != NULL ? found : mc_find(name);
        __atomic_store_n(cache, found, __ATOMIC_RELAXED);
    }
    return found;
}

#ifdef OPEN_MPI
int mc_f_is_ignored(const void *status)
{
    static const void *one, *all;
    return status == constant(&one, "mpi_fortran_status_ignore_") ||
           status == constant(&all, "mpi_fortran_statuses_ignore_");
}

int mc_f_is_in_place(const void *buffer)
{
    static const void *cache;
    return buffer == constant(&cache, "mpi_fortran_in_place_");
}

void *mc_f_own_status(void *status, MPI_Fint *own)
{
    return mc_f_is_ignored(status) ? own : status;
}

/* The two languages have the same layout where an INTEGER is an int. The program's array may be aligned for INTEGERs
   only. */
const MPI_Status *mc_f_status(MPI_Status *out, const void *status)
{
    if (sizeof(MPI_Fint) == sizeof(int))
        memcpy(out, status, sizeof *out);
    else if (MC_HAVE(MPI_Status_f2c))
        MC_REAL(MPI_Status_f2c)(status, out);
    return out;
}

MPI_Datatype mc_f_type(const void *type)
{
    return MC_HAVE(MPI_Type_f2c) ? MC_REAL(MPI_Type_f2c)(*(const MPI_Fint *)type) : mc_known.type_null;
}

MPI_Comm mc_f_comm(const void *comm)
{
    return MC_HAVE(MPI_Comm_f2c) ? MC_REAL(MPI_Comm_f2c)(*(const MPI_Fint *)comm) : mc_known.comm_null;
}

MPI_Fint mc_f_of_comm(MPI_Comm comm)
{
    return MC_HAVE(MPI_Comm_c2f) ? MC_REAL(MPI_Comm_c2f)(comm) : -1;
}

MPI_Request mc_f_request(const void *request)
{
    return MC_HAVE(MPI_Request_f2c) ? MC_REAL(MPI_Request_f2c)(*(const MPI_Fint *)request) : NULL;
}

MPI_Op mc_f_op(const void *op)
{
    return MC_HAVE(MPI_Op_f2c) ? MC_REAL(MPI_Op_f2c)(*(const MPI_Fint *)op) : mc_known.sum;
}

MPI_Win mc_f_win(const void *win)
{
    return MC_HAVE(MPI_Win_f2c) ? MC_REAL(MPI_Win_f2c)(*(const MPI_Fint *)win) : NULL;
}

MPI_Message mc_f_message(const void *message)
{
    return MC_HAVE(MPI_Message_f2c) ? MC_REAL(MPI_Message_f2c)(*(const MPI_Fint *)message) : NULL;
}
#else /* MPICH's handles are the same integers in both languages */
MPI_Datatype mc_f_type(const void *type)
{
    return *(const MPI_Datatype *)type;
}

MPI_Comm mc_f_comm(const void *comm)
{
    return *(const MPI_Comm *)comm;
}

MPI_Fint mc_f_of_comm(MPI_Comm comm)
{
    return comm;
}

MPI_Request mc_f_request(const void *request)
{
    return *(const MPI_Request *)request;
}

MPI_Win mc_f_win(const void *win)
{
    return *(const MPI_Win *)win;
}

MPI_Message mc_f_message(const void *message)
{
    return *(const MPI_Message *)message;
}

int mc_f_is_ignored(const void *status)
{
    static const void *one, *all;
    return status == constant(&one, "MPIR_F08_MPI_STATUS_IGNORE_OBJ") ||
           status == constant(&all, "MPIR_F08_MPI_STATUSES_IGNORE_OBJ");
}

const MPI_Status *mc_f_status(MPI_Status *out, const void *status)
{
    memcpy(out, status, sizeof *out);
    return out;
}
#endif
