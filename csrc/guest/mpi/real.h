/* Pointers to the PMPI functions of the MPI library, found at first use. The shim is not linked to an MPI library, so
   it loads into every program. If the running library lacks a function, only calls of that function fail. */
#ifndef MPICOLOC_REAL_H
#define MPICOLOC_REAL_H

#include "calls_gen.h"

/* An array argument with C handles, or with Fortran handles, which are integers. */
struct mc_handles {
    const void *items;
    int is_fortran;
};

/* Predefined handles: addresses of data in Open MPI, numbers in other libraries. */
typedef struct mc_constants {
    MPI_Comm world, self, comm_null;
    MPI_Datatype type_null, type_byte, type_int, type_char;
    MPI_Group group_null;
    MPI_Op sum, no_op;
    MPI_Message message_no_proc;
    MPI_Info info_null;
    MPI_Errhandler errors_return;
} mc_constants;

extern mc_constants mc_known;
extern mc_real_table mc_real;
extern mc_real_table mc_next; /* functions of the next tool before MPI, or of MPI if there is no tool */

/* Fill one pointer of a table. Returns 0 if no loaded library has the function. Threads may call this at once, because
   all store the same value. */
int mc_resolve(void *slot, const char *name);

/* The same for a pointer of mc_next. name: the function's name with the P. */
int mc_resolve_next(void *slot, const char *name);

/* Address of a symbol of the MPI library, even if the program loaded the library with RTLD_LOCAL. NULL: not found. */
void *mc_find(const char *name);

int mc_is_mpi_file(const char *path); /* judged by the file's name; 0 for this library and for tools */

/* 1 if the address is in a library of MPI itself. Covers libraries loaded before mc_find_libraries is called. */
int mc_is_library(const void *address);
void mc_find_libraries(void);

/* 1 if the MPI library in this process is of the family that this shim was built for. */
int mc_library_fits(void);

/* Error code for calls of functions that the running library lacks. */
int mc_missing(void);

/* Atomic, because the first thread that needs a pointer stores it while others may read it. */
#define MC_POINTER(slot) __atomic_load_n(&(slot), __ATOMIC_RELAXED)

static inline void mc_set_pointer(void *slot, void *found)
{
    typedef void *__attribute__((may_alias)) any_pointer;
    __atomic_store_n((any_pointer *)slot, found, __ATOMIC_RELAXED);
}

#define MC_HAVE(function) \
    (__builtin_expect(MC_POINTER(mc_real.p_##function) != NULL, 1) || mc_resolve(&mc_real.p_##function, "P" #function))

#define MC_HAVE_NEXT(function) \
    (__builtin_expect(MC_POINTER(mc_next.p_##function) != NULL, 1) || \
     mc_resolve_next(&mc_next.p_##function, "P" #function))

#define MC_REAL(function) (MC_HAVE(function) ? MC_POINTER(mc_real.p_##function) : NULL)

#ifdef OPEN_MPI
#define MC_IS_OPEN_MPI 1
#else
#define MC_IS_OPEN_MPI 0
#endif

#endif
