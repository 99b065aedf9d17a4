/* Counts outside MPI: a worker thread does what the test says, step by step, and sleeps while its counts are looked at.
   The truth is a third pair of counters, read where its steps begin and end. Compiled with software events where the
   machine has no PMU. Exit code: number of failed checks. */
#define _GNU_SOURCE
#include "agent/meters/thread_counts.h"
#include "../support/worker.h"

static mc_segment *segment;
static mc_thread_counts *counts;
static uint64_t span;

static mc_lane_head *lane_of(const worker *w)
{
    for (int i = 0; i < (int)segment->n_lanes; i++)
        if (mc_lane_tables(segment, i).head->owner_tid == (uint64_t)w->tid)
            return mc_lane_tables(segment, i).head;
    return NULL;
}

static void follow(const worker *w)
{
    mc_followed thread = {w->tid, 0, lane_of(w)};
    mc_thread_counts_follow(counts, &thread, 1);
}

static void begin_span(void)
{
    span = mc_now_ns() + 1000000000ull * TEST_LIMIT_S;
    segment->sampling.counts_until = span;
}

static void begin(worker *w, int claims_lane)
{
    start(w, claims_lane);
    follow(w);
    begin_span();
}

typedef struct window {
    uint64_t all, outside;
} window;

static window truth(const worker *w)
{
    uint64_t now = counted(w);
    return (window){now, w->outside + (w->is_inside ? 0 : now - w->last)};
}

static int near(uint64_t a, uint64_t b)
{
    uint64_t apart = a > b ? a - b : b - a;
    if (apart > STEP / 8)
        fprintf(stderr, "%.3f instead of %.3f million\n", (double)a * 1e-6, (double)b * 1e-6);
    return apart <= STEP / 8;
}

/* The window that was begun, in which the worker takes these steps, as the agent sees it and in truth. */
static void check_rest(worker *w, const char *steps)
{
    mc_ipc all, outside;
    window before = truth(w);
    for (; *steps; steps++)
        tell(w, *steps == '(' ? BEGIN : *steps == ')' ? END : BUSY, STEP);
    mc_thread_counts_note(counts, 1, span);
    window after = truth(w);
    CHECK(mc_thread_counts_between(counts, &all, &outside) == 1);
    CHECK(near(all.instructions, after.all - before.all));
    CHECK(near(outside.instructions, after.outside - before.outside));
    CHECK(outside.cycles <= all.cycles && (outside.cycles > 0) == (outside.instructions > 0));
}

static void check_window(worker *w, const char *steps)
{
    mc_thread_counts_note(counts, 0, span);
    check_rest(w, steps);
}

/* ( and ) are begin and end of a call, + is work. */
static void test_windows(void)
{
    static const char *const windows[] = {"()++(+++)+", "+(++)++(+)", "+(+", "++", "+)+",
                                          "+++",        "(+)",        "+(",  "+",  ")+"};
    worker w;
    begin(&w, 1);
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
        check_window(&w, windows[i]);
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        begin_span(); /* nothing is known of the thread but its times */
        check_window(&w, windows[i]);
    }
    stop(&w);
}

/* Between two spans the thread has called, or is in a call for long, and has told nothing. */
static void test_spans_apart(void)
{
    worker w;
    begin(&w, 1);
    check_window(&w, "+++");
    tell(&w, BEGIN, 0);
    tell(&w, END, 0);
    mc_thread_counts_note(counts, 0,
                          span); /* so soon after a call that both pairs of counters are known to a few instructions */
    segment->sampling.counts_until = 0;
    tell(&w, BEGIN, 0);
    uint64_t seq = lane_of(&w)->tally.seq;
    begin_span();
    check_window(&w, "++");
    check_window(&w, "+)+");
    CHECK(lane_of(&w)->tally.seq > seq);
    segment->sampling.counts_until = mc_now_ns() - 1; /* its agent was killed */
    seq = lane_of(&w)->tally.seq;
    tell(&w, BEGIN, 0);
    tell(&w, END, 0);
    CHECK(lane_of(&w)->tally.seq == seq);
    segment->sampling.counts_until = 0;
    stop(&w);
}

/* A call begins or ends as the span does: its thread has seen that nobody counts, loses its processor, and shows what
   it did only after the window has begun. */
static void test_late_times(void)
{
    static const char *const windows[] = {"+(++)+", ")+(+", "++", "+)+"};
    worker w;
    begin(&w, 1);
    check_window(&w, "+(+)+(");
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        mc_lane_head *lane = lane_of(&w);
        uint64_t *shown = w.is_inside ? &lane->calls.t_last : &lane->t_enter, before = *shown;
        segment->sampling.counts_until = 0;
        tell(&w, w.is_inside ? END : BEGIN, 0);
        uint64_t late = *shown;
        CHECK(late > before);
        *shown = before;
        begin_span();
        mc_thread_counts_note(counts, 0, span);
        *shown = late;
        check_rest(&w, windows[i]);
    }
    stop(&w);
}

/* The first window of all, in which the thread opens its counters. */
static void test_first_window(void)
{
    worker w;
    begin(&w, 1);
    check_window(&w, "+(+)+");
    stop(&w);
    start(&w, 0); /* calls no MPI */
    follow(&w);
    check_window(&w, "++");
    stop(&w);
}

static void test_calls_that_are_only_counted(void)
{
    worker w;
    begin(&w, 1);
    check_window(&w, "(+)");
    for (int i = 0; i < 50; i++) {
        tell(&w, LIGHT, 7);
        CHECK(lane_of(&w)->t_enter <= lane_of(&w)->calls.t_last);
        CHECK(lane_of(&w)->tally.state == MC_TALLY_OUTSIDE);
    }
    check_window(&w, "+(+)+");
    stop(&w);
}

static void test_fork(void)
{
    worker w;
    begin(&w, 1);
    check_window(&w, "+(+)");
    tell(&w, FORK, 0);
    CHECK(w.n_forked == 1);
    check_window(&w, "+(+)+");
    stop(&w);
}

/* No counts, but nothing else either. */
static void check_unknown(worker *w)
{
    mc_ipc all, outside;
    mc_thread_counts_note(counts, 0, span);
    tell(w, BUSY, STEP);
    tell(w, BEGIN, 0);
    tell(w, END, 0);
    mc_thread_counts_note(counts, 1, span);
    CHECK(mc_thread_counts_between(counts, &all, &outside) == 0);
    CHECK(all.cycles > 0);
}

static void test_no_descriptors(void)
{
    worker w;
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    rlim_t usual = limit.rlim_cur;
    begin(&w, 1);
    limit.rlim_cur = 100;
    setrlimit(RLIMIT_NOFILE, &limit);
    check_unknown(&w);
    limit.rlim_cur = usual;
    setrlimit(RLIMIT_NOFILE, &limit);
    check_unknown(&w);
    stop(&w);
    CHECK(fcntl(256, F_GETFD) < 0);
}

/* Applications close what they did not open, and get the numbers for files of their own. */
static void test_descriptors_of_others(void)
{
    worker w;
    int ends[2], n_ours = 0;
    char text[8] = "";
    begin(&w, 1);
    check_window(&w, "+(+)");
    CHECK(pipe(ends) == 0 && write(ends[1], "theirs", 7) == 7);
    for (int fd = 256; fd < 300; fd++) {
        n_ours += fcntl(fd, F_GETFD) == FD_CLOEXEC;
        dup2(ends[0], fd);
    }
    CHECK(n_ours == MC_N_EVENTS);
    check_unknown(&w);
    stop(&w);
    for (int fd = 256; fd < 300; fd++)
        CHECK(fcntl(fd, F_GETFD) == 0);
    CHECK(read(ends[0], text, sizeof text) == 7 && strcmp(text, "theirs") == 0);
    for (int fd = 256; fd < 300; fd++)
        close(fd);
}

/* A thread that ends takes its counters with it. */
static void test_ended_thread(void)
{
    worker w;
    mc_ipc all, outside;
    begin(&w, 1);
    check_window(&w, "+(+)");
    mc_thread_counts_note(counts, 0, span);
    stop(&w);
    mc_thread_counts_note(counts, 1, span);
    CHECK(mc_thread_counts_between(counts, &all, &outside) == 0);
    for (int fd = 256; fd < 300; fd++)
        CHECK(fcntl(fd, F_GETFD) < 0);
}

static int is_counter(int fd)
{
    char path[64], text[64] = "";
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return readlink(path, text, sizeof text - 1) > 0 && strstr(text, "perf_event") != NULL;
}

static void lose_counters(const worker *w)
{
    int n_lost = 0, empty = open("/dev/null", O_RDONLY | O_CLOEXEC);
    for (int fd = 3; fd < 256; fd++)
        if (is_counter(fd) && fd != w->group.fds[0] && fd != w->group.fds[1])
            n_lost += dup2(empty, fd) == fd;
    CHECK(n_lost == MC_N_EVENTS);
    close(empty);
}

/* Where others have pinned all counters, a pinned group reads as an empty file: from then on it takes turns. Of the
   window in which that is noticed, at either end, nothing is known. */
static void test_counters_pinned_by_others(void)
{
    worker w;
    mc_ipc all, outside;
    begin(&w, 0);
    for (int i_end = 0; i_end < 2; i_end++) {
        check_window(&w, "+");
        for (int i = 0; i < 2; i++) {
            if (i == i_end)
                lose_counters(&w);
            mc_thread_counts_note(counts, i, span);
            tell(&w, BUSY, STEP);
        }
        CHECK(mc_thread_counts_between(counts, &all, &outside) < 0);
        CHECK(all.instructions == 0 && all.cycles == 0 && outside.cycles == 0);
        check_window(&w, "++");
    }
    stop(&w);
}

/* Instructions of so many rounds of one loop, inside and outside. */
static void test_hardware(void)
{
    worker w;
    mc_ipc all, once, outside;
    begin(&w, 1);
    mc_thread_counts_note(counts, 0, span);
    tell(&w, BEGIN, 0);
    tell(&w, END, 0);
    tell(&w, LOOP, N_LOOPS);
    mc_thread_counts_note(counts, 1, span);
    CHECK(mc_thread_counts_between(counts, &all, &once) == 1);
    mc_thread_counts_note(counts, 0, span);
    tell(&w, BEGIN, 0);
    tell(&w, LOOP, 3 * N_LOOPS);
    tell(&w, END, 0);
    tell(&w, LOOP, N_LOOPS);
    mc_thread_counts_note(counts, 1, span);
    CHECK(mc_thread_counts_between(counts, &all, &outside) == 1);
    fprintf(stderr, "%llu, %llu of %llu\n", (unsigned long long)once.instructions,
            (unsigned long long)outside.instructions, (unsigned long long)all.instructions);
    CHECK(once.instructions > N_LOOPS);
    CHECK(outside.instructions > once.instructions * 0.98 && outside.instructions < once.instructions * 1.02);
    CHECK(all.instructions > once.instructions * 3.9 && all.instructions < once.instructions * 4.1);
    stop(&w);
}

static const named_test tests[] = {{"windows", test_windows},
                                   {"spans", test_spans_apart},
                                   {"late", test_late_times},
                                   {"first", test_first_window},
                                   {"light", test_calls_that_are_only_counted},
                                   {"fork", test_fork},
                                   {"limit", test_no_descriptors},
                                   {"closed", test_descriptors_of_others},
                                   {"ended", test_ended_thread},
                                   {"pinned", test_counters_pinned_by_others},
                                   {"hardware", test_hardware}};

int main(int argc, char **argv)
{
    mc_identity identity = {"tally", "tally", "none", 0, 1, 0, 1, 1, MC_MODE_PRELOAD};
    char reason[MC_TEXT_LEN];
    alarm(TEST_LIMIT_S);
    if (mc_perf_available(reason, sizeof reason) != MC_OK) {
        fprintf(stderr, "unavailable: %s\n", reason);
        return CANNOT;
    }
    if (mc_start(&identity) != MC_OK)
        return 1;
    segment = mc_own_segment();
    counts = mc_thread_counts_open();
    run_named(tests, sizeof tests / sizeof *tests, argc > 1 ? argv[1] : "");
    mc_thread_counts_close(counts);
    mc_forget();
    return n_failed;
}
