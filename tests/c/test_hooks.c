/* The accounting of cycles, on a clock that the test sets. Exit code: number of failed checks. */
#define _GNU_SOURCE
#include "hooks.h"
#include "table.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static uint64_t clock_ns = 1000;
static int n_failed;

enum { LEAD = 20, TAIL = 10 }; /* of a shutter before and after its window, ns */

int clock_gettime(clockid_t id, struct timespec *now)
{
    (void)id;
    now->tv_sec = (time_t)(clock_ns / 1000000000u);
    now->tv_nsec = (long)(clock_ns % 1000000000u);
    return 0;
}

int mc_gate_install(mc_segment *segment)
{
    segment->gate.signal = 0;
    return MC_OK;
}

#define CHECK_EQUAL(got, want) \
    do { \
        unsigned long long g = (got), w = (want); \
        if (g != w) { \
            fprintf(stderr, "%s:%d: %s is %llu, should be %llu\n", __FILE__, __LINE__, #got, g, w); \
            n_failed++; \
        } \
    } while (0)

/* One MPI call at a site: computes for comp_ns, then is in MPI for mpi_ns. */
static void cycle(void *site, uint64_t comp_ns, uint64_t mpi_ns, uint64_t bytes)
{
    mc_frame frame;
    clock_ns += comp_ns;
    int outermost = mc_enter(&frame, 7, site);
    mc_frame nested;
    CHECK_EQUAL(outermost, 1);
    CHECK_EQUAL(mc_enter(&nested, 8, site), 0);
    clock_ns += mpi_ns;
    mc_leave(&frame, bytes, 0);
}

static mc_window *publish(mc_segment *s, uint64_t t0, uint64_t t1)
{
    mc_window *window = &s->sampling.windows[s->sampling.n_windows % MC_N_WINDOWS];
    *window = (mc_window){t0 - LEAD, t0, t1, t1 + TAIL, s->sampling.n_windows, MC_VERDICT_UNKNOWN};
    s->sampling.n_windows++;
    return window;
}

static mc_cell sum(const mc_lane *lane, int phase)
{
    mc_cell total = {0, 0, 0};
    for (int i = 0; i < MC_N_CYCLES; i++)
        for (int g = 0; g < MC_N_GROUPS; g++)
            mc_cell_add(&total, phase == MC_PHASE_SOLO ? &lane->cycles[i].solo[g] : &lane->cycles[i].corun[g]);
    return total;
}

static void test_split(mc_segment *s)
{
    mc_lane *lane = &s->lanes[0];
    char a, b;
    s->sampling.alone = 0;
    cycle(&a, 100, 10, 8);
    CHECK_EQUAL(sum(lane, MC_PHASE_CORUN).n, 1);
    CHECK_EQUAL(sum(lane, MC_PHASE_CORUN).comp_ns, 100);

    uint64_t t = clock_ns;
    mc_window *window =
        publish(s, t + 50, t + 250);            /* [50, 250): cuts the first cycle, holds the second, cuts the third */
    cycle(&b, 90, 10, 8);                       /* ends at 100: 50 outside, 50 in */
    cycle(&b, 100, 20, 8);                      /* ends at 220: all in */
    cycle(&b, 100, 20, 8);                      /* ends at 340: 30 in, 90 out */
    CHECK_EQUAL(sum(lane, MC_PHASE_SOLO).n, 0); /* no verdict yet */
    window->verdict = MC_VERDICT_VALID;
    publish(s, clock_ns + 10, clock_ns + 20)->verdict = MC_VERDICT_MOVED;
    cycle(&b, 30, 5, 8);
    mc_cell solo = sum(lane, MC_PHASE_SOLO), corun = sum(lane, MC_PHASE_CORUN);
    CHECK_EQUAL(solo.n, 2);
    CHECK_EQUAL(solo.comp_ns, 40 + 100 + 30);
    CHECK_EQUAL(solo.mpi_ns, 10 + 20);
    CHECK_EQUAL(corun.n, 3);
    CHECK_EQUAL(corun.comp_ns, 100 + 30 + 60 + 0); /* 20 before and 10 after each window count for no phase */
    CHECK_EQUAL(corun.mpi_ns, 10 + 20 + 5);
}

static void test_long_burst_over_windows(mc_segment *s)
{
    mc_lane *lane = &s->lanes[0];
    static char site;
    mc_cell before = sum(lane, MC_PHASE_SOLO);
    uint64_t t = clock_ns;
    for (int i = 0; i < 3; i++)
        publish(s, t + 1000u * (unsigned)i + 100, t + 1000u * (unsigned)i + 200)->verdict = MC_VERDICT_VALID;
    mc_thread_paused_ns += 400; /* stood still for the neighbour meanwhile */
    cycle(&site, 5000, 10, 1 << 20);
    mc_segment_settle(s);
    mc_cell after = sum(lane, MC_PHASE_SOLO);
    CHECK_EQUAL(after.comp_ns - before.comp_ns, 300);
    CHECK_EQUAL(after.n - before.n, 0);
    CHECK_EQUAL(lane->n_pending, 0);
}

static void test_overflow(mc_segment *s)
{
    mc_lane *lane = &s->lanes[0];
    static char sites[3 * MC_N_SITES];
    uint64_t n_calls = lane->counters.n_calls;
    for (int i = 0; i < 3 * MC_N_SITES; i++)
        cycle(&sites[i], 1, 1, 4);
    CHECK_EQUAL(lane->counters.n_calls - n_calls, 3 * MC_N_SITES);
    uint64_t total = 0;
    for (int i = 0; i < MC_N_SITES; i++)
        total += lane->sites[i].n;
    CHECK_EQUAL(total, lane->counters.n_calls);
    CHECK_EQUAL(lane->sites[0].n, lane->counters.n_site_overflow);
    CHECK_EQUAL(lane->counters.n_site_overflow > 0, 1);
    mc_cell corun = sum(lane, MC_PHASE_CORUN), solo = sum(lane, MC_PHASE_SOLO);
    CHECK_EQUAL(corun.n + solo.n, lane->counters.n_calls - 0); /* nothing is lost, in no table */
}

static void *other_thread(void *arg)
{
    cycle(arg, 5, 5, 16);
    return NULL;
}

static void test_threads(mc_segment *s)
{
    static char site;
    for (int i = 0; i < MC_N_LANES; i++) { /* one more than there are lanes left */
        pthread_t thread;
        pthread_create(&thread, NULL, other_thread, &site);
        pthread_join(thread, NULL);
    }
    CHECK_EQUAL(s->lanes[1].counters.n_calls, 1);
    CHECK_EQUAL(s->lanes[MC_N_LANES - 1].counters.n_calls, 1);
    CHECK_EQUAL(s->counters.n_lane_overflow, 1);
}

int main(void)
{
    mc_identity identity = {.key = "hooks",
                            .job_id = "job",
                            .mpi_library = "none",
                            .world_size = 1,
                            .local_size = 1,
                            .n_nodes = 1,
                            .mode = MC_MODE_PRELOAD};
    CHECK_EQUAL(mc_half_octave(0), 0);
    CHECK_EQUAL(mc_half_octave(1 << 20) != mc_half_octave((1 << 20) + (1 << 19)), 1);
    if (mc_start(&identity) != MC_OK)
        return 100;
    mc_segment *s = mc_own_segment();
    test_split(s);
    test_long_burst_over_windows(s);
    test_overflow(s);
    test_threads(s);
    mc_stop(MC_RANK_FINALIZING);
    CHECK_EQUAL(s->state, MC_RANK_FINALIZING);
    CHECK_EQUAL(mc_own_segment() == NULL, 1);
    return n_failed;
}
