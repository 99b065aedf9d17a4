/* Completion calls: find the requests that completed, the bytes that these requests moved, and the senders. */
#ifndef MPICOLOC_COMPLETION_H
#define MPICOLOC_COMPLETION_H

#include "guest/calls/volume.h"

enum {
    MC_N_OWN = 64, /* up to this number of requests, a call needs no memory beyond the stack */
    MC_N_FEW = 8,  /* largest number of requests for mc_completion_note */
};

#ifdef MC_HAS_FORTRAN
enum { MC_F_STATUS_BYTES = sizeof(MPI_Status) / sizeof(int) * sizeof(MPI_Fint) };
#else
enum { MC_F_STATUS_BYTES = sizeof(MPI_Status) };
#endif

typedef struct mc_completion {
    uint64_t n;      /* requests to examine after the call; 0: no request in the table */
    uint64_t before; /* only older rows of the table can complete in this call */
    uint64_t *keys;  /* handles saved before the call, because the call replaces them */
    mc_handles requests;
    const void *statuses; /* NULL: unknown */
    uint64_t own_keys[MC_N_OWN];
    _Alignas(MPI_Status) char own_statuses[MC_N_OWN][MC_F_STATUS_BYTES];
} mc_completion;

/* Receives and file accesses in progress. */
extern mc_op_table mc_under_way;

/* Before the call: save the handles. Returns the status array to pass to MPI, which is our own array if the program
   ignores statuses. */
void *mc_completion_begin(mc_completion *c, mc_volume *v, long long n, mc_handles requests, void *statuses,
                          int is_ignored);

/* First part of mc_completion_begin for few requests in a single-threaded program. It stores only the handles, because
   all other work can be done after the call. Returns 0 if the call needs mc_completion_begin. */
static inline __attribute__((always_inline)) int mc_completion_note(mc_completion *c, int n,
                                                                    const MPI_Request *requests)
{
    if (n < 0 || n > MC_N_FEW || requests == NULL || __atomic_load_n(&mc_ops_shared, __ATOMIC_RELAXED))
        return 0;
    for (int i = 0; i < n; i++) {
        c->own_keys[i] = MC_KEY_OF(requests[i]);
        __asm__ volatile(""); /* keep the stores separate: a block copy takes longer to start */
    }
    return 1;
}

static inline void mc_completion_resume(mc_completion *c, int n, const MPI_Request *requests, const void *statuses)
{
    c->n = (uint64_t)n;
    c->before = UINT64_MAX;
    c->keys = c->own_keys;
    c->requests = (mc_handles){requests, 0};
    c->statuses = statuses;
}

/* Call this after a call that completed all of its requests, or none of them if `done` is 0. */
void mc_completion_all(mc_completion *c, mc_volume *v, int status, int done);

/* Call this after a call that completed n_done of its requests. `indices` lists them; the first request has the index
   `base`. */
void mc_completion_some(mc_completion *c, mc_volume *v, int status, int n_done, const int *indices, int base);

#endif
