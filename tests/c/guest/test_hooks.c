/* The accounting of cycles, on a clock that the test sets. Exit code: number of failed checks. */
#define _GNU_SOURCE
#include "../support/cycles.h"

#include "guest/regions.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

/* While the meter ipc counts calls take longer, and cycles do not. */
static void test_time_of_counting(mc_segment *s)
{
    mc_lane *lane = &s->lanes[0];
    static char site;
    cycle(&site, 100, 10, 8);
    mc_cell before = sum(lane, MC_PHASE_CORUN);
    uint64_t begin = clock_ns, n_before = n_tallies;
    s->sampling.counts_until = clock_ns + 3 * 110 + 5 * TALLY_NS + 1;
    for (int i = 0; i < 4; i++) /* the last one ends too late */
        cycle(&site, 100, 10, 8);
    s->sampling.counts_until = 0;
    cycle(&site, 100, 10, 8);
    mc_cell after = sum(lane, MC_PHASE_CORUN);
    CHECK_EQUAL(n_tallies - n_before, 6);
    CHECK_EQUAL(tally_state, MC_TALLY_OUTSIDE);
    CHECK_EQUAL(clock_ns - begin, 5 * 110 + 6 * TALLY_NS);
    CHECK_EQUAL(after.n - before.n, 5);
    CHECK_EQUAL(after.comp_ns - before.comp_ns, 5 * 100);
    CHECK_EQUAL(after.mpi_ns - before.mpi_ns, 5 * 10);
    CHECK_EQUAL(lane->head.t_enter < lane->head.calls.t_last, 1);
}

static uint64_t n_calls(mc_segment *s)
{
    mc_segment_settle(s);
    return s->lanes[0].head.counters.n_calls;
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
    CHECK_EQUAL(cut(lane).done_ns, 50 + LEAD + 120); /* of the two that ended, from the pause's begin */
    CHECK_EQUAL(cut(lane).cut_ns, 50 - LEAD);
    CHECK_EQUAL(corun.n, 3);
    CHECK_EQUAL(corun.comp_ns, 100 + 30 + 60 + 0); /* 20 before and 10 after each window count for no phase */
    CHECK_EQUAL(corun.mpi_ns, 10 + 20 + 5);
    CHECK_EQUAL(cut(lane).cell.n, 2); /* each of the two shutters cut one that ended after it */
    CHECK_EQUAL(cut(lane).cell.comp_ns, (50 - LEAD) + (120 - 30 - TAIL) + (35 - LEAD - 10 - TAIL + 10));
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
    CHECK_EQUAL(lane->head.n_pending, 0);
}

/* What a cycle did in all shutters that it met counts where it ends in the last of them. */
static void test_end_in_a_later_window(mc_segment *s)
{
    mc_lane *lane = &s->lanes[0];
    static char site;
    mc_sample before = cut(lane);
    uint64_t t = clock_ns;
    for (int i = 0; i < 2; i++)
        publish(s, t + 1000u * (unsigned)i + 100, t + 1000u * (unsigned)i + 200)->verdict = MC_VERDICT_VALID;
    cycle(&site, 1140, 10, 1 << 21);
    mc_segment_settle(s);
    uint64_t inside_ns = (LEAD + 100 + TAIL) + (LEAD + 50);
    CHECK_EQUAL(cut(lane).done_ns - before.done_ns, inside_ns);
    CHECK_EQUAL(cut(lane).cut_ns - before.cut_ns, 1150 - inside_ns);
    CHECK_EQUAL(cut(lane).cell.n - before.cell.n, 0);
    CHECK_EQUAL(cut(lane).cell.comp_ns - before.cell.comp_ns, 1150 - inside_ns);
    cycle(&site, 100, 10, 1); /* out of the window */
}

static void test_overflow(mc_segment *s)
{
    mc_lane *lane = &s->lanes[0];
    static char sites[3 * MC_N_SITES];
    uint64_t n_before = n_calls(s), n_cycles = sum(lane, MC_PHASE_CORUN).n;
    for (int i = 0; i < 3 * MC_N_SITES; i++)
        cycle(&sites[i], 1, 1, 4);
    CHECK_EQUAL(n_calls(s) - n_before, 3 * MC_N_SITES);
    CHECK_EQUAL(lane->sites[0].n, lane->head.counters.n_site_overflow);
    CHECK_EQUAL(lane->head.counters.n_site_overflow > 0, 1);
    CHECK_EQUAL(sum(lane, MC_PHASE_CORUN).n - n_cycles, 3 * MC_N_SITES); /* nothing is lost, in no table */
}

static void light_call(void *site, uint64_t mpi_ns, int happened)
{
    mc_frame frame;
    CHECK_EQUAL(mc_enter_light(&frame, 9, site, MC_STACK()), 1);
    call_inside(site);
    clock_ns += mpi_ns;
    if (happened)
        mc_leave_done(&frame, 3, 0);
    else
        mc_leave_light(&frame, 0, 0);
}

static const mc_site_row *row_of(const mc_lane *lane, uint32_t call)
{
    for (int i = 1; i < MC_N_SITES; i++)
        if (lane->sites[i].n && lane->sites[i].call == call)
            return &lane->sites[i];
    return NULL;
}

static char light_site;

static void test_sampling(mc_segment *s)
{
    enum { N = 200000, FIRST_NS = 1000, LATER_NS = 7 };
    mc_lane *lane = &s->lanes[0];
    uint64_t sampled_before = lane->head.counters.sampled_ns;
    for (int i = 0; i < N; i++)
        light_call(&light_site, i ? LATER_NS : FIRST_NS, 0);
    const mc_site_row *row = row_of(lane, 9);
    CHECK_EQUAL(row->n, N);
    CHECK_EQUAL(row->n_timed > 1000 && row->n_timed < N / 64, 1); /* they follow each other so fast */
    CHECK_EQUAL(row->max_ns, FIRST_NS);
    /* the calls since the last timed one are not in yet */
    CHECK_EQUAL(row->time_ns <= FIRST_NS + (N - 1) * LATER_NS, 1);
    CHECK_EQUAL(row->time_ns >= FIRST_NS + (N - 1 - 3 * 512) * LATER_NS, 1);
    CHECK_EQUAL(lane->head.counters.sampled_ns - sampled_before,
                row->time_ns - FIRST_NS - (row->n_timed - 1) * LATER_NS);

    mc_cell before = sum(lane, MC_PHASE_CORUN);
    for (int i = 0; i < 1000; i++)
        light_call(&light_site, LATER_NS, 1);
    mc_cell after = sum(lane, MC_PHASE_CORUN);
    CHECK_EQUAL(row->n, N + 1000);
    CHECK_EQUAL(row->sent_bytes, 3000);
    CHECK_EQUAL(after.n - before.n, 1000); /* what happened ends a cycle, timed or not */
}

/* Seldom calls are timed more densely again, and no sparser than at first. */
static void test_sampling_of_seldom_calls(mc_segment *s)
{
    enum { N = 48 * 2000, MPI_NS = 200000 };
    const mc_lane *lane = &s->lanes[0];
    uint64_t begin = clock_ns;
    while (clock_ns - begin < 5000000000u)
        light_call(&light_site, MPI_NS, 0);
    uint64_t n_before = row_of(lane, 9)->n_timed;
    for (int i = 0; i < N; i++)
        light_call(&light_site, MPI_NS, 0);
    uint64_t n = row_of(lane, 9)->n_timed - n_before;
    CHECK_EQUAL(n > N / 48 && n < N / 16, 1);
}

static void pcontrol(int level, ...)
{
    static char site;
    mc_frame frame;
    va_list arguments;
    va_start(arguments, level);
    CHECK_EQUAL(mc_enter(&frame, 10, &site), 1);
    mc_pcontrol(&frame, level, arguments);
    mc_leave(&frame, 0, 0);
    va_end(arguments);
}

static void test_units(mc_segment *s)
{
    static char site;
    mc_lane *lane = &s->lanes[0];
    pcontrol(MC_PCONTROL_UNIT);
    uint64_t t = clock_ns;
    publish(s, t + 1010, t + 1110)->verdict = MC_VERDICT_VALID;
    for (int i = 0; i < 40; i++) { /* units of 100 ns, calls of 50 */
        cycle(&site, 45, 5, 1);
        cycle(&site, 45, 5, 1);
        pcontrol(MC_PCONTROL_UNITS, 3ul);
    }
    mc_segment_settle(s);
    const mc_cycle_row *row = NULL;
    for (int i = 1; i < MC_N_CYCLES; i++)
        if (lane->cycles[i].from == MC_UNIT_SITE)
            row = &lane->cycles[i];
    CHECK_EQUAL(row != NULL, 1);
    mc_cell corun = {0}, solo = {0};
    for (int g = 0; row && g < MC_N_GROUPS; g++) {
        mc_cell_add(&corun, &row->corun[g]);
        mc_cell_add(&solo, &row->solo[g].cell);
    }
    CHECK_EQUAL(solo.comp_ns, 100);
    CHECK_EQUAL(solo.n, 3); /* the end of one mark's units lies in the window */
    uint64_t done_ns = 0, cut_ns = 0;
    for (int g = 0; row && g < MC_N_GROUPS; g++) {
        done_ns += row->solo[g].done_ns;
        cut_ns += row->solo[g].cut_ns;
    }
    CHECK_EQUAL(done_ns + cut_ns, 100); /* of all three */
    CHECK_EQUAL(corun.comp_ns, 4000 - LEAD - 100 - TAIL);
    CHECK_EQUAL(lane->head.counters.n_units, 121);
}

static void test_regions(mc_segment *s)
{
    static char site;
    mc_lane_head *head = &s->lanes[0].head;
    pcontrol(MC_PCONTROL_END, "never begun");
    pcontrol(MC_PCONTROL_BEGIN, "outer");
    for (int i = 0; i < 3; i++) {
        pcontrol(MC_PCONTROL_BEGIN, "inner");
        cycle(&site, 60, 40, 1);
        pcontrol(MC_PCONTROL_END, "inner");
    }
    pcontrol(MC_PCONTROL_BEGIN, "left open");
    mc_thread_paused_ns += 10;
    clock_ns += 17;
    pcontrol(MC_PCONTROL_END, "outer");
    uint64_t want[3][3] = {{1, 307, 120}, {3, 300, 120}, {1, 7, 0}};
    const char *names[3] = {"outer", "inner", "left open"};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < MC_N_REGIONS; k++)
            if (strcmp(head->regions[k].name, names[i]) == 0) {
                CHECK_EQUAL(head->regions[k].n, want[i][0]);
                CHECK_EQUAL(head->regions[k].time_ns, want[i][1]);
                CHECK_EQUAL(head->regions[k].mpi_ns, want[i][2]);
                names[i] = "found";
            }
    CHECK_EQUAL(strcmp(names[0], "found") | strcmp(names[1], "found") | strcmp(names[2], "found"), 0);
    char many[2 * MC_REGION_LEN];
    for (int i = 0; i < 2 * MC_N_REGIONS; i++) {
        snprintf(many, sizeof many, "%-60.11d", i); /* longer than there is room for */
        pcontrol(MC_PCONTROL_BEGIN, many);
    }
    for (int i = 0; i < 2 * MC_N_REGIONS; i++)
        pcontrol(MC_PCONTROL_END, "outer"); /* not open: nothing */
    pcontrol(MC_PCONTROL_END, "0");
    CHECK_EQUAL(head->regions[1].n, 1);
}

static __attribute__((noinline)) void enter_and_jump(mc_frame *frame, void *site)
{
    CHECK_EQUAL(mc_enter(frame, 7, site), 1);
}

/* An error handler may leave an MPI call by longjmp; the calls after it count again. */
static void test_call_left_by_a_jump(mc_segment *s)
{
    static char site;
    mc_frame lost;
    uint64_t n = n_calls(s);
    enter_and_jump(&lost, &site);
    cycle(&site, 1, 1, 0);
    CHECK_EQUAL(n_calls(s) - n, 1);
}

static void *other_thread(void *arg)
{
    cycle(arg, 5, 5, 16);
    return NULL;
}

static void test_lane_goes_to_the_next_thread(mc_segment *s)
{
    static char site;
    for (int i = 0; i < 2 * MC_N_ALL_LANES; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, other_thread, &site);
        pthread_join(thread, NULL);
    }
    mc_segment_settle(s);
    CHECK_EQUAL(s->lanes[1].head.counters.n_calls, 2 * MC_N_ALL_LANES);
    CHECK_EQUAL(s->lanes[1].head.n_owners, 2 * MC_N_ALL_LANES);
    CHECK_EQUAL(s->lanes[1].head.owner_tid, 0);
    CHECK_EQUAL(s->small_lanes[0].head.n_owners, 0);
    CHECK_EQUAL(s->counters.n_lane_overflow, 0);
}

static pthread_barrier_t all_have_one;

static void *together(void *arg)
{
    mc_frame frame;
    int outermost = mc_enter(&frame, 7, arg);
    pthread_barrier_wait(&all_have_one);
    if (outermost)
        mc_leave(&frame, 0, 0);
    return NULL;
}

static void test_more_threads_than_lanes(mc_segment *s)
{
    static char site;
    pthread_t threads[MC_N_ALL_LANES];
    pthread_barrier_init(&all_have_one, NULL, MC_N_ALL_LANES);
    for (int i = 0; i < MC_N_ALL_LANES; i++) /* one more than there are free */
        pthread_create(&threads[i], NULL, together, &site);
    for (int i = 0; i < MC_N_ALL_LANES; i++)
        pthread_join(threads[i], NULL);
    mc_segment_settle(s);
    CHECK_EQUAL(s->small_lanes[MC_N_SMALL_LANES - 1].head.counters.n_calls, 1);
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
    test_time_of_counting(s);
    test_end_in_a_later_window(s);
    test_units(s);
    test_regions(s);
    test_sampling(s);
    test_sampling_of_seldom_calls(s);
    test_overflow(s);
    test_call_left_by_a_jump(s);
    test_lane_goes_to_the_next_thread(s);
    test_more_threads_than_lanes(s);
    mc_stop(MC_RANK_FINALIZING);
    CHECK_EQUAL(s->state, MC_RANK_FINALIZING);
    CHECK_EQUAL(mc_own_segment() == NULL, 1);
    return n_failed;
}
