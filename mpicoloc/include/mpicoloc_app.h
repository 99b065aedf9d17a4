/* For applications that want to tell mpicoloc more: units of work and named regions.
 *
 * All of it calls the standard MPI_Pcontrol with special levels, so no library has to be linked. Without mpicoloc, or
 * under another tool, the calls do nothing. Call none of it before MPI_Init or after MPI_Finalize.
 *
 *     mpicc -I$(mpicoloc preload --include) app.c
 *
 * In Fortran, MPI_Pcontrol takes only a level: call MPI_Pcontrol(int(z'6d630001')) marks a unit. */
#ifndef MPICOLOC_APP_H
#define MPICOLOC_APP_H

#include <mpi.h>

enum {
    MPICOLOC_UNIT = 0x6d630001,  /* one unit of work is done */
    MPICOLOC_UNITS = 0x6d630002, /* (unsigned long n): n of them */
    MPICOLOC_BEGIN = 0x6d630003, /* (const char *name) */
    MPICOLOC_END = 0x6d630004    /* (const char *name) */
};

/* A unit is a step, an iteration or a sample: anything that takes equal work each time. Its rate measures progress. */
static inline void mpicoloc_unit(void)
{
    MPI_Pcontrol(MPICOLOC_UNIT);
}

static inline void mpicoloc_units(unsigned long n)
{
    MPI_Pcontrol(MPICOLOC_UNITS, n);
}

/* A named part of the program on the calling thread; regions may be nested. */
static inline void mpicoloc_begin(const char *name)
{
    MPI_Pcontrol(MPICOLOC_BEGIN, name);
}

static inline void mpicoloc_end(const char *name)
{
    MPI_Pcontrol(MPICOLOC_END, name);
}

#endif
