/* The meter count. Exit code: number of failed checks. */
#define _GNU_SOURCE
#define RANK_WORK(x) x += (double)pass_many(500)
static unsigned pass_many(unsigned n);
#include "agent/count/patching.h"
#include "agent/count/stubs.h"
#include "agent/meters/count.h"
#include "agent/meters/meter.h"
#include "agent/relocation/relocate.h"
#include "../support/count_lab.h"

/* Every pass of every thread counts, and nothing when the place is as it was. In the end the rank takes it back by
   itself. */
static void test_exact(lab *a)
{
    uint64_t n_places = a->set.n, n_passes = (uint64_t)a->n_threads * N_PASSES;
    CHECK(insist(a, MC_PATCH_INSTALL) && mc_patching_is_patched(&a->ranks));
    CHECK(run_once(a) == n_passes);
    CHECK(insist(a, MC_PATCH_REMOVE) && !mc_patching_is_patched(&a->ranks));
    CHECK(run_once(a) == 0);
    /* The place is found again, though its page may be a copy that no file's name stands for. */
    CHECK(mc_stubs_make(&a->set, a->decoder, &a->files, a->counts, &a->ranks) == MC_OK && a->set.n == n_places);
    CHECK(insist(a, MC_PATCH_INSTALL));
    CHECK(run_once(a) == n_passes);
    fprintf(stderr, "stood still for %.0f us in 3 changes\n", (double)a->stopped_ns * 1e-3);
}

static void test_fork(lab *a)
{
    CHECK(insist(a, MC_PATCH_INSTALL));
    told->forks = 2;
    CHECK_SOON(told->forks == 0, 20);
}

/* Code is changed again and again under a program that passes the place, also in handlers of signals. */
static void test_storm(lab *a)
{
    int n_installed = 0;
    for (int i = 0; i < N_CHANGES; i++) {
        told->n_runs++;
        n_installed += change(a, MC_PATCH_INSTALL);
        change(a, MC_PATCH_REMOVE);
    }
    fprintf(stderr, "%d of %d changes in time\n", n_installed, N_CHANGES);
    CHECK(n_installed > N_CHANGES / 10);
}

/* A debugger may have breakpoints in the code. */
static void test_unlike(lab *a)
{
    a->ranks.rows[0].segment->counting.patches[0].before[0] ^= 1;
    mc_counting *counting = &a->ranks.rows[0].segment->counting;
    for (int i = 0; i < 50 && counting->request != MC_PATCH_FAILED; i++) /* the thread may come too late */
        CHECK(!change(a, MC_PATCH_INSTALL) && !mc_patching_is_patched(&a->ranks));
    CHECK(counting->request == MC_PATCH_FAILED);
    CHECK(run_once(a) == 0);
}

/* Windows of a thread that passes a place all the time, near it or, where nothing is counted, far from all. */
static void sample_windows(lab *a, mc_window_samples *samples, mc_shutter *shutter)
{
    uint64_t cost_ns = 0;
    const mc_counted_code code = {&a->set, a->decoder, &a->files, a->counts};
    memset(shutter, 0, sizeof *shutter);
    CHECK(mc_window_samples_begin(samples, &a->ranks, &a->set, 0, 0) == MC_OK);
    for (int i = 0; i < MC_N_WINDOW_EDGES; i++) {
        mc_window_samples_edge(samples, i);
        uint64_t n_before = mc_spots_n_taken(samples->spots);
        WAIT_FOR(mc_spots_n_taken(samples->spots) >= n_before + 40, 10);
    }
    mc_window_samples_end(samples, &code, shutter, &cost_ns);
    CHECK(cost_ns > 0);
    CHECK(shutter->waited_frac <= 1.0 && (shutter->waited_frac >= 0.0 || access("/proc/self/schedstat", R_OK) != 0));
}

static void test_near(lab *a)
{
    mc_shutter shutter;
    mc_window_samples *samples = mc_window_samples_new();
    mc_spots *spots = mc_spots_new();
    told->n_runs = 1 << 30;
    sample_windows(a, samples, &shutter);
    for (int i = 0; i < MC_N_COUNT_WINDOWS; i++)
        CHECK(shutter.n_samples[i] > 0 && 2 * shutter.n_near[i] > shutter.n_samples[i]);
    mc_window_samples_recall(samples, spots);
    int n_before = spots->n;
    a->set.n = 0;
    sample_windows(a, samples, &shutter);
    for (int i = 0; i < MC_N_COUNT_WINDOWS; i++)
        CHECK(shutter.n_samples[i] > 0 && shutter.n_near[i] == 0);
    mc_window_samples_recall(samples, spots);
    CHECK(spots->n > n_before);
    mc_spots_free(spots);
    mc_window_samples_free(samples);
}

/* Waits since an instant, if all the time since then was beside co-runners; pauses do not count. */
static void test_waits(lab *a)
{
    uint64_t ns, waited_ns, paused_ns = 1000;
    mc_node *node = calloc(1, sizeof *node);
    mc_waits from = mc_waits_until_now(&a->ranks, node), never = {0};
    CHECK(from.n == 1 && from.waited_ns <= mc_proc_waited_ns(a->ranks.rows[0].pid, a->ranks.rows[0].pid));
    nap_ms(2);
    mc_waits to = mc_waits_until_now(&a->ranks, node);
    to.waited_ns = from.waited_ns + 700;
    mc_waits_between(&from, &to, &ns, &waited_ns);
    CHECK(ns == to.t - from.t && waited_ns == 700);
    to.paused_ns = from.paused_ns + paused_ns;
    mc_waits_between(&from, &to, &ns, &waited_ns);
    CHECK(ns == to.t - from.t - paused_ns && waited_ns == 700);
    mc_waits_between(&never, &to, &ns, &waited_ns);
    CHECK(ns == 0 && waited_ns == 0);
    to.alone_ns = from.alone_ns + (to.t - from.t) / 2;
    mc_waits_between(&from, &to, &ns, &waited_ns);
    CHECK(ns == 0 && waited_ns == 0);
    to.alone_ns = from.alone_ns;
    to.n = from.n + 1;
    mc_waits_between(&from, &to, &ns, &waited_ns);
    CHECK(ns == 0 && waited_ns == 0);
    free(node);
}

/* Waits until a number is not 0, by an instruction that could be a place. It is never called. */
extern const char before_waiting[], waiting_place[];
__asm__(".text\n\t.balign 16\n\t.globl before_waiting\nbefore_waiting:\n\txorl %eax, %eax\n\t"
        ".globl waiting_place\nwaiting_place:\n\tmovl 0x1000(%rdi), %eax\n\ttestl %eax, %eax\n\t"
        "jz waiting_place\n\tret");

/* The inner loop's instructions are short; the outer one has a long one, before all samples of the inner one. */
extern const char outer_loop[], inner_loop[];
__asm__(".text\n\t.balign 16\n\t.globl outer_loop\nouter_loop:\n\tmovl $0x1000, %ecx\n\ttestl %eax, %eax\n\t"
        ".globl inner_loop\ninner_loop:\n\tincq (%rdi)\n\tdecl %ecx\n\tjnz inner_loop\n\tdecl %edx\n\tjnz "
        "outer_loop\n\tret");

/* What a search for places needs. */
typedef struct search {
    mc_spots *spots;
    mc_places *places;
    mc_counts *counts;
    mc_program_files files;
    mc_decoder *decoder;
} search;

static search open_search(void)
{
    return (search){.spots = mc_spots_new(),
                    .places = calloc(1, sizeof(mc_places)),
                    .counts = calloc(1, sizeof(mc_counts)),
                    .decoder = mc_decoder_new()};
}

static void close_search(search *all)
{
    mc_program_files_close(&all->files);
    mc_decoder_free(all->decoder);
    mc_spots_free(all->spots);
    free(all->counts);
    free(all->places);
}

static void test_outer(void)
{
    search all = open_search();
    mc_spots *spots = all.spots;
    mc_places *places = all.places;
    uint64_t to_offset = name_file(all.counts, getpid(), outer_loop);
    spots->n = 1;
    spots->rows[0] = (mc_spot){(uint64_t)(uintptr_t)inner_loop + to_offset, 9, 0};
    mc_places_find(places, all.decoder, &all.files, all.counts, spots, NULL);
    CHECK(places->n == 1 && places->rows[0].place.offset == (uint64_t)(uintptr_t)outer_loop + to_offset);
    close_search(&all);
}

/* A loop that only waits is no place, neither where a sample lies in it nor behind one that leads to it. */
static void test_waiting(void)
{
    search all = open_search();
    mc_spots *spots = all.spots;
    mc_places *places = all.places;
    mc_patch_code patch;
    uint64_t to_offset = name_file(all.counts, getpid(), waiting_place), waiting = (uint64_t)(uintptr_t)waiting_place;
    spots->n = 3;
    spots->rows[0] = (mc_spot){waiting + to_offset, 9, 0};
    spots->rows[1] = (mc_spot){(uint64_t)(uintptr_t)counted_place + to_offset, 5, 0};
    spots->rows[2] = (mc_spot){(uint64_t)(uintptr_t)before_waiting + to_offset, 1, 0};
    CHECK(mc_relocate(all.decoder, (const uint8_t *)before_waiting, 32, waiting - 2, waiting, waiting, 8, &patch) ==
          MC_OK);
    mc_places_drop_waiting(spots, all.decoder, &all.files, all.counts);
    CHECK(spots->n == 2 && spots->rows[0].n == 5 && spots->rows[1].n == 1);
    mc_places_find(places, all.decoder, &all.files, all.counts, spots, NULL);
    CHECK(places->n > 0);
    for (int i = 0; i < places->n; i++)
        CHECK(places->rows[i].place.offset != waiting + to_offset);
    close_search(&all);
}

#include "../support/count_safety.h"

static uint64_t n_counted(const mc_node *node)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < node->counts.n_rows && i < MC_N_COUNT_ROWS; i++) {
        const mc_count_row *row = &node->counts.rows[i];
        n += row->n[0][0] && row->n[MC_N_BEFORE_WINDOWS - 1][0] && row->n[MC_N_BEFORE_WINDOWS][0];
    }
    return n;
}

static void test_jobs(void)
{
    setenv("MPICOLOC_METER", "count", 1);
    setenv("MPICOLOC_SHUTTER_DURATION_S", "0.01", 1);
    test_job a = start_job("a", 1), b = start_job("b", 1);
    WAIT_FOR(n_counted(a.node) > 2 && n_counted(b.node) > 2, 55);
    end_job(&a);
    end_job(&b);
    fprintf(stderr, "%s; %d rows, %.0f passes, %.1f ms\n", a.node->meter_reason, (int)a.node->counts.n_rows,
            (double)a.node->counts.n_passes, (double)a.node->counts.stopped_ns * 1e-6);
    CHECK(a.node->meter == MC_METER_COUNT && a.node->counts.n_sets > 0);
    CHECK(n_counted(a.node) > 2 && n_counted(b.node) > 2);
    CHECK(strstr(a.node->counts.paths[0], "test_count") != NULL);
    forget_job(&a);
    forget_job(&b);
}

static void test_forbidden(void)
{
    setenv("MPICOLOC_METER", "count", 1);
    setenv("MPICOLOC_PATCHING", "0", 1);
    test_job a = start_job("a", 1);
    nap_ms(100);
    end_job(&a);
    CHECK(a.node->meter == MC_METER_BURST && strstr(a.node->meter_reason, "option patching is 0") != NULL);
    CHECK(a.segments[0]->counting.counters_offset == 0);
    forget_job(&a);
}

static const struct lab_test {
    const char *name;
    void (*run)(lab *a);
    int n_threads, forks, has_timer;
} lab_tests[] = {
    {"exact", test_exact, .n_threads = 1},
    {"threads", test_exact, .n_threads = N_THREADS},
    {"fork", test_fork, .n_threads = 1, .forks = 1},
    {"storm", test_storm, .n_threads = N_THREADS, .has_timer = 1},
    {"unlike", test_unlike, .n_threads = 1},
    {"near", test_near, .n_threads = 1},
    {"waits", test_waits, .n_threads = 1},
    {"differs", test_differs, .n_threads = 1},
    {"lease", test_lease, .n_threads = N_THREADS},
    {"lease_asleep", test_lease_asleep, .n_threads = 1},
    {"lease_in_call", test_lease_in_call, .n_threads = 1},
    {"stopped", test_stopped, .n_threads = 1},
    {"reader", test_reader, .n_threads = 1},
    {"reader_taken", test_reader_taken, .n_threads = 1},
    {"no_time", test_no_time, .n_threads = 1},
    {"busy", test_busy, .n_threads = 1},
    {"hot", test_hot, .n_threads = 1},
    {"kept", test_kept, .n_threads = 1},
    {"taken_page", test_taken_page, .n_threads = 1},
};

/* 0: it is none of these. */
static int run_in_lab(const char *name)
{
    lab a;
    for (size_t i = 0; i < sizeof lab_tests / sizeof *lab_tests; i++) {
        const struct lab_test *test = &lab_tests[i];
        if (strcmp(name, test->name) != 0)
            continue;
        told->forks = test->forks;
        told->has_timer = test->has_timer;
        open_lab(&a, test->n_threads);
        test->run(&a);
        close_lab(&a);
        return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    static const named_test tests[] = {
        {"thin", test_thin},   {"choice", test_choice}, {"waiting", test_waiting},
        {"outer", test_outer}, {"jobs", test_jobs},     {"forbidden", test_forbidden},
    };
    alarm(TEST_LIMIT_S + 20);
    setenv("MPICOLOC_METER", "count", 1);
    told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (argc == 2 && !run_in_lab(argv[1]))
        run_named(tests, sizeof tests / sizeof *tests, argv[1]);
    if (argc > 2 && strcmp(argv[1], "exempt") == 0)
        test_exempt(argc - 2, argv + 2);
    return n_failed;
}
