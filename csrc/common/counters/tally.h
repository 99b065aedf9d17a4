/* A thread's own hardware counters: it reads them where its MPI calls begin and end, while the node agent counts. */
#ifndef MPICOLOC_TALLY_H
#define MPICOLOC_TALLY_H

#include "common/mpicoloc.h"

/* From now on the lane belongs to the calling thread. */
void mc_tally_start(mc_tally *tally);

/* An MPI call of the calling thread begins or ends in a span of counting. was_inside: it was inside MPI until now;
   from now on it is as `state` says. Call it before the lane's times change: a reader that gets an old tally has
   read the times before. */
void mc_tally_note(mc_tally *tally, uint64_t span, int was_inside, uint64_t state) __attribute__((cold, noinline));

/* The calling thread stops counting. */
void mc_tally_close(void);
/* In a forked child: forget the descriptors, which are copies. */
void mc_tally_forget(void);

static inline mc_ipc mc_ipc_load(const mc_ipc *field)
{
    return (mc_ipc){__atomic_load_n(&field->instructions, __ATOMIC_ACQUIRE),
                    __atomic_load_n(&field->cycles, __ATOMIC_ACQUIRE)};
}

/* Read a tally at one instant. MC_E_GONE: its thread stands still in the middle of writing it. */
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
