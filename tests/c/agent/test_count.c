/* The meter count. Exit code: number of failed checks. */
#define _GNU_SOURCE
#define RANK_WORK(x) x += (double)pass_many(500)
static unsigned pass_many(unsigned n);
#include "agent/count/patching.h"
#include "agent/count/stubs.h"
#include "agent/meters/count.h"
#include "agent/relocation/relocate.h"
#include "../support/node.h"

#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/time.h>

enum { N_THREADS = 3, N_PASSES = 200000, N_CHANGES = 200, LIMIT_NS = 2000000000, SLEEP_MS = 3000 };

enum { N_CODE = 64 };

/* Adds n times. Of the two counted places one lies in 8 aligned bytes, the other only in 16. */
unsigned count_passes(unsigned n);
extern const char counted_place[], straddling_place[];
__asm__(".text\n\t.balign 64\n\t.globl count_passes\n\t.type count_passes,@function\ncount_passes:\n\t"
        "xorl %eax, %eax\n\t.balign 8\n1:\tnop\n\t.globl counted_place\ncounted_place:\n\t"
        "movl $1, %ecx\n\taddl %ecx, %eax\n\t.balign 16\n\t.skip 6, 0x90\n\t"
        ".globl straddling_place\nstraddling_place:\n\tmovl $2, %ecx\n\taddl %ecx, %eax\n\t"
        "subl $1, %edi\n\tjnz 1b\n\tret\n\t.balign 64\n\t.size count_passes,.-count_passes");

/* Waits until a number is not 0, by an instruction that could be a place. It is never called. */
extern const char before_waiting[], waiting_place[];
__asm__(".text\n\t.balign 16\n\t.globl before_waiting\nbefore_waiting:\n\txorl %eax, %eax\n\t"
        ".globl waiting_place\nwaiting_place:\n\tmovl 0x1000(%rdi), %eax\n\ttestl %eax, %eax\n\t"
        "jz waiting_place\n\tret");

static unsigned pass_many(unsigned n)
{
    return count_passes(n);
}

enum { OTHER_CALL = 1, OTHER_SLEEP, OTHER_CODE, OTHER_READER };

/* What a rank is told to do, and what came out. */
typedef struct orders {
    volatile int n_runs, n_done, forks, stops, is_wrong, has_timer;
    volatile int is_ready;
    volatile int other;
} orders;

static orders *told;

static void pass_in_handler(int signal)
{
    (void)signal;
    told->is_wrong |= count_passes(7) != 21;
}

/* As another tool might do it: behind the counted word, and the program computes the same. */
static void exchange_code(void)
{
    static const uint8_t minus_one[] = {0x83, 0xef, 0x01}, plus_minus_one[] = {0x83, 0xc7, 0xff};
    uintptr_t begin = (uintptr_t)count_passes & ~(uintptr_t)4095;
    const void *code = (const void *)(uintptr_t)counted_place;
    uint8_t *at = memmem(code, 64, minus_one, sizeof minus_one), *back = memmem(code, 64, plus_minus_one, 3);
    if ((!at && !back) || mprotect((void *)begin, 8192, PROT_READ | PROT_WRITE | PROT_EXEC) != 0)
        _exit(4);
    memcpy(at ? at : back, at ? plus_minus_one : minus_one, 3);
    mprotect((void *)begin, 8192, PROT_READ | PROT_EXEC);
}

/* The rank's first thread. */
static void do_otherwise(void)
{
    uint64_t begin = mc_now_ns();
    mc_frame frame;
    if (told->other == OTHER_CALL && mc_enter(&frame, 0, told))
        mc_leave(&frame, 0, 0);
    else if (told->other == OTHER_SLEEP)
        told->is_wrong |= poll(NULL, 0, SLEEP_MS) != 0 || mc_now_ns() - begin < SLEEP_MS * 1000000ull;
    else if (told->other == OTHER_CODE)
        exchange_code();
    else if (told->other == OTHER_READER)
        prctl(PR_SET_PTRACER, getppid());
    told->other = 0;
}

static void *obey_runs(void *data)
{
    int n_seen = 0;
    (void)data;
    __atomic_fetch_add(&told->is_ready, 1, __ATOMIC_SEQ_CST);
    while (!told->stops) { /* it runs all the time, so that it is signalled */
        if (told->other && getpid() == gettid())
            do_otherwise();
        if (n_seen == told->n_runs)
            continue;
        n_seen++;
        told->is_wrong |= count_passes(N_PASSES) != 3u * N_PASSES;
        __atomic_fetch_add(&told->n_done, 1, __ATOMIC_SEQ_CST);
    }
    return NULL;
}

static uint8_t original[N_CODE];

static int is_original(void)
{
    return memcmp((const void *)(uintptr_t)count_passes, original, sizeof original) == 0;
}

static void fork_in_rank(void)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0)
        _exit(is_original() && count_passes(10) == 30 ? 0 : 1);
    waitpid(pid, &status, 0);
    told->is_wrong |= status != 0;
    told->forks = 0;
}

static void be_counted(int n_threads)
{
    pthread_t threads[N_THREADS];
    mc_identity identity = {"one", "one", "none", 0, 1, 0, 1, 1, MC_MODE_PRELOAD};
    memcpy(original, (const void *)(uintptr_t)count_passes, sizeof original);
    if (mc_start(&identity) != MC_OK)
        _exit(3);
    for (int i = 1; i < n_threads; i++)
        pthread_create(&threads[i], NULL, obey_runs, NULL);
    if (told->has_timer) {
        struct itimerval often = {{0, 300}, {0, 300}};
        signal(SIGALRM, pass_in_handler);
        setitimer(ITIMER_REAL, &often, NULL);
    }
    if (!told->forks) {
        obey_runs(NULL);
    } else {
        told->is_ready = 1;
        while (told->forks != 2)
            ;
        fork_in_rank();
        while (!told->stops)
            ;
    }
    for (int i = 1; i < n_threads; i++)
        pthread_join(threads[i], NULL);
    signal(SIGALRM, SIG_IGN);
    mc_stop(MC_RANK_FINALIZING);
    told->is_wrong |= !is_original();
    _exit(0);
}

/* The rank, and what the agent knows of it. */
typedef struct lab {
    pid_t pid;
    mc_job_ranks ranks;
    mc_counts *counts;
    mc_decoder *decoder;
    mc_program_files files;
    mc_place_set set;
    uint64_t stopped_ns;
    int wake;
} lab;

static void open_lab(lab *a, int n_threads)
{
    mc_maps *maps = malloc(sizeof *maps);
    memset(a, 0, sizeof *a);
    if ((a->pid = child()) == 0)
        be_counted(n_threads);
    WAIT_FOR(told->is_ready == (told->forks ? 1 : n_threads), 20);
    CHECK(mc_job_ranks_open(&a->ranks, "one") == MC_OK);
    mc_job_ranks_find(&a->ranks);
    mc_job_ranks_check(&a->ranks, mc_now_ns());
    CHECK(a->ranks.n == 1 && a->ranks.n_alive == 1);
    CHECK(mc_maps_read(maps, a->pid) == MC_OK);
    a->counts = calloc(1, sizeof *a->counts);
    const mc_map *map = mc_maps_find(maps, (uint64_t)(uintptr_t)counted_place);
    CHECK(map != NULL);
    snprintf(a->counts->paths[0], MC_TEXT_LEN, "%s", maps->paths[map->i_path]);
    uint64_t to_offset = map->offset - map->start, n_places = __builtin_cpu_supports("avx") ? 2 : 1;
    a->set.n = 2;
    a->set.places[0] = (mc_place){(uint64_t)(uintptr_t)counted_place + to_offset, 0};
    a->set.places[1] = (mc_place){(uint64_t)(uintptr_t)straddling_place + to_offset, 0};
    a->decoder = mc_decoder_new();
    CHECK(mc_stubs_make(&a->set, a->decoder, &a->files, a->counts, &a->ranks) == MC_OK && a->set.n == n_places);
    free(maps);
}

static int change(lab *a, uint32_t request)
{
    return mc_patching_change(&a->ranks, request, LIMIT_NS, &a->stopped_ns, &a->wake) == MC_OK;
}

/* A thread that stands still for one change may miss the signal of the next. */
static int insist_once(lab *a, uint32_t request)
{
    for (int i = 0; i < 50; i++) {
        if (change(a, request))
            return 1;
        nap_ms(10);
    }
    return 0;
}

/* However slow this machine is: the rank does not take it back by itself. */
static int insist(lab *a, uint32_t request)
{
    int is_done = insist_once(a, request);
    mc_patching_renew(&a->ranks, mc_now_ns() + 3600 * 1000000000ull);
    return is_done;
}

static void close_lab(lab *a)
{
    int status = -1;
    char path[MC_PATH_LEN];
    told->stops = 1;
    waitpid(a->pid, &status, 0);
    if (status || told->is_wrong)
        fprintf(stderr, "status %d, wrong %d\n", status, told->is_wrong);
    CHECK(status == 0 && !told->is_wrong);
    CHECK(mc_shm_path(path, sizeof path, "one", "0.seg") == MC_OK && unlink(path) == 0);
    mc_program_files_close(&a->files);
    mc_decoder_free(a->decoder);
    free(a->counts);
    mc_job_ranks_close(&a->ranks);
}

static uint64_t run_once(lab *a, int n_threads)
{
    mc_snapshot begin = {NULL, 0, 0, 0}, end = {NULL, 0, 0, 0};
    uint64_t sums[MC_N_PLACES];
    int n_done = told->n_done;
    CHECK(mc_snapshot_take(&begin, &a->ranks) == MC_OK);
    told->n_runs++;
    WAIT_FOR(told->n_done == n_done + n_threads, 30);
    CHECK(told->n_done == n_done + n_threads);
    CHECK(mc_snapshot_take(&end, &a->ranks) == MC_OK && end.n == begin.n);
    mc_snapshot_between(&begin, &end, sums);
    mc_snapshot_free(&begin);
    mc_snapshot_free(&end);
    CHECK(a->set.n == 1 || sums[1] == sums[0]);
    return sums[0];
}

/* Every pass of every thread counts, and nothing when the place is as it was. */
static void check_counts(int n_threads)
{
    lab a;
    open_lab(&a, n_threads);
    CHECK(insist(&a, MC_PATCH_INSTALL) && mc_patching_is_patched(&a.ranks));
    CHECK(run_once(&a, n_threads) == (uint64_t)n_threads * N_PASSES);
    CHECK(insist(&a, MC_PATCH_REMOVE) && !mc_patching_is_patched(&a.ranks));
    CHECK(run_once(&a, n_threads) == 0);
    CHECK(insist(&a, MC_PATCH_INSTALL));
    CHECK(run_once(&a, n_threads) == (uint64_t)n_threads * N_PASSES);
    fprintf(stderr, "stood still for %.0f us in 3 changes\n", (double)a.stopped_ns * 1e-3);
    close_lab(&a); /* patched: the rank takes it back by itself */
}

static void test_exact(void)
{
    check_counts(1);
}

static void test_threads(void)
{
    check_counts(N_THREADS);
}

static void test_fork(void)
{
    lab a;
    told->forks = 1;
    open_lab(&a, 1);
    CHECK(insist(&a, MC_PATCH_INSTALL));
    told->forks = 2;
    WAIT_FOR(told->forks == 0, 20);
    CHECK(told->forks == 0);
    close_lab(&a);
}

/* Code is changed again and again under a program that passes the place, also in handlers of signals. */
static void test_storm(void)
{
    lab a;
    int n_installed = 0;
    told->has_timer = 1;
    open_lab(&a, N_THREADS);
    for (int i = 0; i < N_CHANGES; i++) {
        told->n_runs++;
        n_installed += change(&a, MC_PATCH_INSTALL);
        change(&a, MC_PATCH_REMOVE);
    }
    fprintf(stderr, "%d of %d changes in time\n", n_installed, N_CHANGES);
    CHECK(n_installed > N_CHANGES / 10);
    close_lab(&a);
}

/* A debugger may have breakpoints in the code. */
static void test_unlike(void)
{
    lab a;
    open_lab(&a, 1);
    a.ranks.rows[0].segment->counting.patches[0].before[0] ^= 1;
    CHECK(!change(&a, MC_PATCH_INSTALL) && !mc_patching_is_patched(&a.ranks));
    CHECK(a.ranks.rows[0].segment->counting.request == MC_PATCH_FAILED);
    CHECK(run_once(&a, 1) == 0);
    close_lab(&a);
}

/* A loop that only waits is no place, neither where a sample lies in it nor behind one that leads to it. */
static void test_waiting(void)
{
    mc_maps *maps = malloc(sizeof *maps);
    mc_spots *spots = mc_spots_new();
    mc_places *places = calloc(1, sizeof *places);
    mc_counts *counts = calloc(1, sizeof *counts);
    mc_program_files files = {0};
    mc_decoder *decoder = mc_decoder_new();
    mc_patch_code patch;
    CHECK(mc_maps_read(maps, getpid()) == MC_OK);
    const mc_map *map = mc_maps_find(maps, (uint64_t)(uintptr_t)waiting_place);
    CHECK(map != NULL);
    uint64_t to_offset = map->offset - map->start, waiting = (uint64_t)(uintptr_t)waiting_place;
    snprintf(counts->paths[0], MC_TEXT_LEN, "%s", maps->paths[map->i_path]);
    spots->n = 3;
    spots->rows[0] = (mc_spot){waiting + to_offset, 9, 0};
    spots->rows[1] = (mc_spot){(uint64_t)(uintptr_t)counted_place + to_offset, 5, 0};
    spots->rows[2] = (mc_spot){(uint64_t)(uintptr_t)before_waiting + to_offset, 1, 0};
    CHECK(mc_relocate(decoder, (const uint8_t *)before_waiting, 32, waiting - 2, waiting, waiting, 8, &patch) == MC_OK);
    mc_places_drop_waiting(spots, decoder, &files, counts);
    CHECK(spots->n == 2 && spots->rows[0].n == 5 && spots->rows[1].n == 1);
    mc_places_find(places, decoder, &files, counts, spots);
    CHECK(places->n > 0);
    for (int i = 0; i < places->n; i++)
        CHECK(places->rows[i].place.offset != waiting + to_offset);
    mc_program_files_close(&files);
    mc_decoder_free(decoder);
    mc_spots_free(spots);
    free(counts);
    free(places);
    free(maps);
}

#include "../support/count_safety.h"

static uint64_t n_counted(const mc_node *node)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < node->counts.n_rows && i < MC_N_COUNT_ROWS; i++) {
        const mc_count_row *row = &node->counts.rows[i];
        n += row->n[0][0] && row->n[1][0] && row->n[2][0];
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

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } tests[] = {
        {"exact", test_exact},
        {"threads", test_threads},
        {"fork", test_fork},
        {"storm", test_storm},
        {"unlike", test_unlike},
        {"differs", test_differs},
        {"lease", test_lease},
        {"lease_asleep", test_lease_asleep},
        {"lease_in_call", test_lease_in_call},
        {"stopped", test_stopped},
        {"reader", test_reader},
        {"reader_taken", test_reader_taken},
        {"no_time", test_no_time},
        {"busy", test_busy},
        {"hot", test_hot},
        {"thin", test_thin},
        {"waiting", test_waiting},
        {"jobs", test_jobs},
        {"forbidden", test_forbidden},
    };
    alarm(TEST_LIMIT_S + 20);
    setenv("MPICOLOC_METER", "count", 1);
    told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (argc == 2 && strcmp(argv[1], tests[i].name) == 0)
            tests[i].run();
    if (argc > 2 && strcmp(argv[1], "exempt") == 0)
        test_exempt(argc - 2, argv + 2);
    return n_failed;
}
