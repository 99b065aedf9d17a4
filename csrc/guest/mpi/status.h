/* Fields of a status. Fields beyond MPI's three are public in the ABIs of MPICH and Open MPI. They are read directly,
   because a library call for each receive would cost more than everything else. */
#ifndef MPICOLOC_STATUS_H
#define MPICOLOC_STATUS_H

#include <stdint.h>

#include "guest/mpi/real.h"

#if defined(OPEN_MPI)
static inline uint64_t mc_status_bytes(const MPI_Status *status)
{
    return status->_ucount;
}

static inline int mc_status_is_cancelled(const MPI_Status *status)
{
    return status->_cancelled;
}
#elif defined(MPICH_VERSION)
static inline uint64_t mc_status_bytes(const MPI_Status *status)
{
    return (uint64_t)(unsigned)status->count_lo | (uint64_t)((unsigned)status->count_hi_and_cancelled >> 1) << 32;
}

static inline int mc_status_is_cancelled(const MPI_Status *status)
{
    return status->count_hi_and_cancelled & 1;
}
#else
static inline uint64_t mc_status_bytes(const MPI_Status *status)
{
    MPI_Count n_bytes = 0;
    if (!MC_HAVE(MPI_Get_elements_x) ||
        MC_REAL(MPI_Get_elements_x)(status, mc_known.type_byte, &n_bytes) != MPI_SUCCESS || n_bytes < 0)
        return 0;
    return (uint64_t)n_bytes;
}

static inline int mc_status_is_cancelled(const MPI_Status *status)
{
    int is_cancelled = 0;
    if (MC_HAVE(MPI_Test_cancelled))
        MC_REAL(MPI_Test_cancelled)(status, &is_cancelled);
    return is_cancelled;
}
#endif

#endif
