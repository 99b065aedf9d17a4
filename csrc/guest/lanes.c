/* Assignment of lanes to threads: a thread claims a lane at its first call and releases it when it ends. */
#define _GNU_SOURCE
#include "common/counters/tally.h"
#include "guest/hooks.h"

#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CALLS_BETWEEN_CLAIMS = 1000 /* calls that a thread without a lane skips before it tries again */ };

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t lane_key;

/* Drop all pointers into the lane, because destructors of other libraries or a forked child may still call MPI. */
static void let_go(void)
{
    memset(&mc_self.tables, 0, sizeof mc_self.tables);
    memset(mc_self.hits, 0, sizeof mc_self.hits);
    mc_self.calls_until_timed = 0;
    mc_self.is_ended = 1;
}

static void release_lane(void *head)
{
    let_go();
    mc_tally_close();
    __atomic_store_n(&((mc_lane_head *)head)->owner_tid, 0, __ATOMIC_RELEASE);
}

void mc_lane_forget(void)
{
    let_go();
    mc_tally_forget();
    if (mc_self.has_key)
        pthread_setspecific(lane_key, NULL);
}

static void make_key(void)
{
    if (pthread_key_create(&lane_key, release_lane) != 0)
        lane_key = (pthread_key_t)-1;
}

/* Lanes are allocated in the file in order. A lane that is not allocated must not even be read: on a full file system
   that raises SIGBUS. */
static int has_room(int i_lane)
{
    static int is_full;
    uint64_t *n_with_room = &mc_the_segment->n_lanes, n_needed = (uint64_t)i_lane + 1;
    if (n_needed <= __atomic_load_n(n_with_room, __ATOMIC_ACQUIRE))
        return 1;
    if (__atomic_load_n(&is_full, __ATOMIC_RELAXED))
        return 0;
    if (mc_lane_reserve(i_lane) != MC_OK) {
        __atomic_store_n(&is_full, 1, __ATOMIC_RELAXED);
        return 0;
    }
    uint64_t n = __atomic_load_n(n_with_room, __ATOMIC_RELAXED);
    while (n < n_needed &&
           !__atomic_compare_exchange_n(n_with_room, &n, n_needed, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        ;
    return 1;
}

static int claim(int i_lane)
{
    uint64_t expected = 0;
    mc_tables tables = mc_lane_tables(mc_the_segment, i_lane);
    mc_lane_head *head = tables.head;
    if (!has_room(i_lane) || __atomic_load_n(&head->owner_tid, __ATOMIC_RELAXED) != 0)
        return 0;
    if (!__atomic_compare_exchange_n(&head->owner_tid, &expected, (uint64_t)syscall(SYS_gettid), 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED))
        return 0;
    mc_self.tables = tables;
    mc_self.i_lane = i_lane;
    mc_clock_start(&mc_self.clock);
    head->n_owners++;
    head->calls = (mc_stream){mc_self.clock.latest_ns, mc_thread_paused_ns, 0,
                              __atomic_load_n(&mc_the_segment->sampling.n_windows, __ATOMIC_ACQUIRE)};
    head->units = (mc_stream){0, 0, 0, 0};
    mc_tally_start(&head->tally);
    mc_self.random = (uint32_t)head->calls.t_last | 1;
    mc_self.every = mc_self.calls_until_timed = MC_SAMPLE_EVERY;
    mc_self.interval = MC_SAMPLE_EVERY + 1;
    mc_self.n_timed = 0;
    mc_self.t_choice = head->calls.t_last;
    return 1;
}

int mc_lane_claim(void)
{
    mc_self.tables.head = NULL;
    if (mc_self.is_ended || mc_self.claim_backoff > 0) {
        mc_self.claim_backoff -= mc_self.claim_backoff > 0;
        return 0;
    }
    pthread_once(&key_once, make_key);
    for (int i = 0; i < MC_N_ALL_LANES; i++) {
        if (!claim(i))
            continue;
        mc_self.has_key = lane_key != (pthread_key_t)-1 && pthread_setspecific(lane_key, mc_self.tables.head) == 0;
        return 1;
    }
    mc_self.claim_backoff = CALLS_BETWEEN_CLAIMS;
    return 0;
}
