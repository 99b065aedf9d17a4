/* Completion calls: what ended, how much it moved, and who sent it. */
#ifndef MPICOLOC_COMPLETION_H
#define MPICOLOC_COMPLETION_H

#include "volume.h"

enum { MC_N_OWN = 64 }; /* requests of a call for which the stack has room */

#ifdef MC_HAS_FORTRAN
enum { MC_F_STATUS_BYTES = sizeof(MPI_Status) / sizeof(int) * sizeof(MPI_Fint) };
#else
enum { MC_F_STATUS_BYTES = sizeof(MPI_Status) };
#endif

typedef struct mc_completion {
    uint64_t n;      /* requests to look at afterwards; 0: nothing is under way that has to be known */
    uint64_t before; /* only what is older can end in this call */
    uint64_t *keys;  /* the handles as they were: completion replaces them */
    mc_handles requests;
    const void *statuses; /* NULL: not known */
    uint64_t own_keys[MC_N_OWN];
    _Alignas(MPI_Status) char own_statuses[MC_N_OWN][MC_F_STATUS_BYTES];
} mc_completion;

/* Some receive or file access is under way. */
int mc_any_pending(void);

/* Before the call: note the handles; returns the statuses to pass, own ones where the program ignores them. */
void *mc_completion_begin(mc_completion *c, mc_volume *v, long long n, mc_handles requests, void *statuses,
                          int is_ignored);

/* After a call that completes all its requests or, if `done` is 0, none. */
void mc_completion_all(mc_completion *c, mc_volume *v, int status, int done);

/* After a call that completed n_done of them, those at `indices` counted from `base`. */
void mc_completion_some(mc_completion *c, mc_volume *v, int status, int n_done, const int *indices, int base);

#endif
