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

/* Address of one of Fortran's named constants. These are variables, and MPI recognises them by their address. A copy in
   the program takes precedence over the variable in the library. */
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

/* MPICH's handles are the same integers in both languages. */
#ifdef OPEN_MPI
#define STATUS_IGNORE "mpi_fortran_status_ignore_"
#define STATUSES_IGNORE "mpi_fortran_statuses_ignore_"
#define FROM_FORTRAN(type, kind, name, none) \
    type mc_f_##name(const void *handle) \
    { \
        return MC_HAVE(MPI_##kind##_f2c) ? MC_REAL(MPI_##kind##_f2c)(*(const MPI_Fint *)handle) : (none); \
    }
#else
#define STATUS_IGNORE "MPIR_F08_MPI_STATUS_IGNORE_OBJ"
#define STATUSES_IGNORE "MPIR_F08_MPI_STATUSES_IGNORE_OBJ"
#define FROM_FORTRAN(type, kind, name, none) \
    type mc_f_##name(const void *handle) \
    { \
        return *(const type *)handle; \
    }
#endif

FROM_FORTRAN(MPI_Datatype, Type, type, mc_known.type_null)
FROM_FORTRAN(MPI_Comm, Comm, comm, mc_known.comm_null)
FROM_FORTRAN(MPI_Request, Request, request, NULL)
FROM_FORTRAN(MPI_Op, Op, op, mc_known.sum)
FROM_FORTRAN(MPI_Win, Win, win, NULL)
FROM_FORTRAN(MPI_Message, Message, message, NULL)

int mc_f_is_ignored(const void *status)
{
    static const void *one, *all;
    return status == constant(&one, STATUS_IGNORE) || status == constant(&all, STATUSES_IGNORE);
}

#ifdef OPEN_MPI
int mc_f_is_in_place(const void *buffer)
{
    static const void *cache;
    return buffer == constant(&cache, "mpi_fortran_in_place_");
}

void *mc_f_own_status(void *status, MPI_Fint *own)
{
    return mc_f_is_ignored(status) ? own : status;
}

/* If an INTEGER is as large as an int, statuses have the same layout in both languages. The status is still copied,
   because the program's array may be aligned for INTEGERs only. */
const MPI_Status *mc_f_status(MPI_Status *out, const void *status)
{
    if (sizeof(MPI_Fint) == sizeof(int))
        memcpy(out, status, sizeof *out);
    else if (MC_HAVE(MPI_Status_f2c))
        MC_REAL(MPI_Status_f2c)(status, out);
    return out;
}

MPI_Fint mc_f_of_comm(MPI_Comm comm)
{
    return MC_HAVE(MPI_Comm_c2f) ? MC_REAL(MPI_Comm_c2f)(comm) : -1;
}

#else
MPI_Fint mc_f_of_comm(MPI_Comm comm)
{
    return comm;
}

const MPI_Status *mc_f_status(MPI_Status *out, const void *status)
{
    memcpy(out, status, sizeof *out);
    return out;
}
#endif
