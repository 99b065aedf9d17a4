/* A tally is written by one thread and read by another, under the thread sanitizer. Exit code: number of failed
   checks. */
#define _GNU_SOURCE
#include "common/counters/perf.h"
#include "common/counters/tally.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { N_NOTES = 30000, EVERY = 100 };

static mc_tally tally;
static int is_ended;

static void *write_it(void *unused)
{
    (void)unused;
    mc_tally_start(&tally);
    for (uint64_t i = 0; i < N_NOTES; i++)
        mc_tally_note(&tally, 1 + i / EVERY, i % 2, i % 2 ? MC_TALLY_OUTSIDE : MC_TALLY_INSIDE);
    mc_tally_close();
    __atomic_store_n(&is_ended, 1, __ATOMIC_RELEASE);
    return NULL;
}

int main(void)
{
    pthread_t thread;
    mc_tally seen = {0}, now;
    char reason[MC_TEXT_LEN];
    int n_failed = 0, n_seen = 0;
    alarm(60);
    if (mc_perf_available(reason, sizeof reason) != MC_OK) {
        fprintf(stderr, "unavailable: %s\n", reason);
        return 77;
    }
    if (pthread_create(&thread, NULL, write_it, NULL) != 0)
        return 1;
    while (!__atomic_load_n(&is_ended, __ATOMIC_ACQUIRE)) {
        if (mc_tally_read(&tally, &now) != MC_OK)
            continue;
        n_seen += now.seq != seen.seq;
        /* What was written together is read together: only a later total belongs to a later sequence. */
        n_failed += now.seq < seen.seq || now.span < seen.span || now.total.cycles < seen.total.cycles;
        n_failed += now.outside.instructions > now.total.instructions || now.outside.cycles > now.total.cycles;
        n_failed += now.seq != 0 && now.span != 0 && now.span != 1 + (now.seq / 2 - 2) / EVERY;
        seen = now;
    }
    pthread_join(thread, NULL);
    fprintf(stderr, "%d tallies seen, %d of them torn\n", n_seen, n_failed);
    return n_failed ? 1 : n_seen < 2;
}
