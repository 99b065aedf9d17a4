/* Completion calls: which requests completed, how many bytes they moved, and who sent them. */
#ifndef MPICOLOC_COMPLETION_H
#define MPICOLOC_COMPLETION_H

#include "guest/calls/volume.h"

enum {
    MC_N_OWN = 64, /* requests for which a call uses the stack */
    MC_N_FEW = 8,  /* the same in a call that programs make millions of times a second */
};

#ifdef MC_HAS_FORTRAN
enum { MC_F_STATUS_BYTES = sizeof(MPI_Status) / sizeof(int) * sizeof(MPI_Fint) };
#else
enum { MC_F_STATUS_BYTES = sizeof(MPI_Status) };
#endif

typedef struct mc_completion {
    uint64_t n;      /* requests to look at after the call; 0: none under way matters */
    uint64_t before; /* only older additions can complete in this call */
    uint64_t *keys;  /* handles before the call, which replaces them */
    mc_handles requests;
    const void *statuses; /* NULL: not known */
    uint64_t own_keys[MC_N_OWN];
    _Alignas(MPI_Status) char own_statuses[MC_N_OWN][MC_F_STATUS_BYTES];
} mc_completion;

/* Receives and file accesses under way. */
extern mc_op_table mc_under_way;

/* Before the call: save the handles. Returns the statuses to pass: own ones if the program ignores them. */
void *mc_completion_begin(mc_completion *c, mc_volume *v, long long n, mc_handles requests, void *statuses,
                          int is_ignored);

/* The same for few requests of a program with one thread, in two parts: before the call it writes nothing to memory
   but the handles. 0: use mc_completion_begin for this call. */
static inline __attribute__((always_inline)) int mc_completion_note(mc_completion *c, int n,
                                                                    const MPI_Request *requests)
{
    if (n < 0 || n > MC_N_FEW || requests == NULL || __atomic_load_n(&mc_ops_shared, __ATOMIC_RELAXED))
        return 0;
    for (int i = 0; i < n; i++) {
        c->own_keys[i] = MC_KEY_OF(requests[i]);
        __asm__ volatile(""); /* keep these stores apart: copying all at once starts more slowly */
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

/* After a call that completes all of its requests, or none of them if `done` is 0. */
void mc_completion_all(mc_completion *c, mc_volume *v, int status, int done);

/* After a call that completed n_done of them, those at `indices` counted from `base`. */
void mc_completion_some(mc_completion *c, mc_volume *v, int status, int n_done, const int *indices, int base);

#endif
