/* A thread's own hardware counters, read where its MPI calls begin and end while the node agent counts. */
#ifndef MPICOLOC_TALLY_H
#define MPICOLOC_TALLY_H

#include "common/mpicoloc.h"

/* The lane belongs to the calling thread from here on. */
void mc_tally_start(mc_tally *tally);

/* An MPI call of the calling thread begins or ends, in a span of counting: it was inside MPI or not, and is from here
   on what `state` says. Before the lane tells the same by its times:
   a reader that finds an old tally looked at these before. */
void mc_tally_note(mc_tally *tally, uint64_t span, int was_inside, uint64_t state) __attribute__((cold, noinline));

/* The calling thread counts no more. */
void mc_tally_close(void);
/* In a forked child, which has copies of the descriptors. */
void mc_tally_forget(void);

static inline mc_ipc mc_ipc_load(const mc_ipc *field)
{
    return (mc_ipc){__atomic_load_n(&field->instructions, __ATOMIC_ACQUIRE),
                    __atomic_load_n(&field->cycles, __ATOMIC_ACQUIRE)};
}

/* A tally at one instant. MC_E_GONE: its thread stands still while it writes. */
static inline int mc_tally_read(const mc_tally *tally, mc_tally *out)
{
    for (int i = 0; i < 1000; i++) {
        uint64_t seq = __atomic_load_n(&tally->seq, __ATOMIC_ACQUIRE);
        *out = (mc_tally){seq,
                          __atomic_load_n(&tally->span, __ATOMIC_ACQUIRE),
                          __atomic_load_n(&tally->began, __ATOMIC_ACQUIRE),
                          __atomic_load_n(&tally->state, __ATOMIC_ACQUIRE),
                          mc_ipc_load(&tally->outside),
                          mc_ipc_load(&tally->total)};
        if (seq % 2 == 0 && __atomic_load_n(&tally->seq, __ATOMIC_RELAXED) == seq)
            return MC_OK;
    }
    return MC_E_GONE;
}

#endif
