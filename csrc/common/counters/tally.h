/* A thread's own hardware counters: it reads them where its MPI calls begin and end, while the node agent counts. */
#ifndef MPICOLOC_TALLY_H
#define MPICOLOC_TALLY_H

#include "common/mpicoloc.h"
#include "common/words.h"

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

/* Read a tally at one instant. MC_E_GONE: its thread stands still in the middle of writing it. */
static inline int mc_tally_read(const mc_tally *tally, mc_tally *out)
{
    for (int i = 0; i < 1000; i++) {
        mc_words_load(out, tally, sizeof *out);
        if (out->seq % 2 == 0 && __atomic_load_n(&tally->seq, __ATOMIC_RELAXED) == out->seq)
            return MC_OK;
    }
    return MC_E_GONE;
}

#endif
