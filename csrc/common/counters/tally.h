/* A thread's own hardware counts. During the agent's measurements, the thread reads its counters when an MPI call
   begins or ends. */
#ifndef MPICOLOC_TALLY_H
#define MPICOLOC_TALLY_H

#include "common/mpicoloc.h"
#include "common/words.h"

/* Start the tally of a lane that the calling thread has claimed. */
void mc_tally_start(mc_tally *tally);

/* Update the tally when an MPI call of the calling thread begins or ends in a span of counting. was_inside: whether the
   thread was inside MPI before. state: MC_TALLY_... from now on. Call this before the lane's times change: if a reader
   then gets the old tally, it has also read the old times. */
void mc_tally_note(mc_tally *tally, uint64_t span, int was_inside, uint64_t state) __attribute__((cold, noinline));

/* Stop counting in the calling thread. */
void mc_tally_close(void);
/* In a forked child: forget the descriptors, which are copies. */
void mc_tally_forget(void);

/* Read a consistent tally. MC_E_GONE: the thread is paused in the middle of writing it. */
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
