/* The meter count. Exit code: number of failed checks. */
#define RANK_WORK(x) x += (double)pass_many(500)
static unsigned pass_many(unsigned n);
#include "agent/count/patching.h"
#include "agent/count/stubs.h"
#include "../support/node.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/time.h>

enum { N_THREADS = 3, N_PASSES = 200000, N_CHANGES = 200, LIMIT_NS = 2000000000 };

/* Adds n times: the instruction in the middle is the counted place. */
unsigned count_passes(unsigned n);
extern const char counted_place[];
#ifdef __aarch64__
__asm__(".text\n\t.balign 64\n\t.globl count_passes\n\t.type count_passes,@function\ncount_passes:\n\t"
        "mov w1, #0\n\t.balign 8\n1:\tnop\n\t.globl counted_place\ncounted_place:\n\t"
        "mov w2, #3\n\tadd w1, w1, w2\n\tsubs w0, w0, #1\n\tb.ne 1b\n\tmov w0, w1\n\tret\n\t"
        ".size count_passes,.-count_passes");
#else
__asm__(".text\n\t.balign 64\n\t.globl count_passes\n\t.type count_passes,@function\ncount_passes:\n\t"
        "xorl %eax, %eax\n\t.balign 8\n1:\tnop\n\t.globl counted_place\ncounted_place:\n\t"
        "movl $3, %ecx\n\taddl %ecx, %eax\n\tsubl $1, %edi\n\tjnz 1b\n\tret\n\t.size count_passes,.-count_passes");
#endif

static unsigned pass_many(unsigned n)
{
    return count_passes(n);
}

/* What a rank is told to do, and what came out. */
typedef struct orders {
    volatile int n_runs, n_done, forks, stops, is_wrong, has_timer;
    volatile int is_ready;
} orders;

static orders *told;

static void pass_in_handler(int signal)
{
    (void)signal;
    told->is_wrong |= count_passes(7) != 21;
}

static void *obey_runs(void *data)
{
    int n_seen = 0;
    (void)data;
    __atomic_fetch_add(&told->is_ready, 1, __ATOMIC_SEQ_CST);
    while (!told->stops) { /* it runs all the time, so that it is signalled */
        if (n_seen == told->n_runs)
            continue;
        n_seen++;
        told->is_wrong |= count_passes(N_PASSES) != 3u * N_PASSES;
        __atomic_fetch_add(&told->n_done, 1, __ATOMIC_SEQ_CST);
    }
    return NULL;
}

static uint64_t word_at_place(void)
{
    return *(const volatile uint64_t *)((uintptr_t)counted_place & ~(uintptr_t)7);
}

static void fork_in_rank(uint64_t original)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0)
        _exit(word_at_place() == original && count_passes(10) == 30 ? 0 : 1);
    waitpid(pid, &status, 0);
    told->is_wrong |= status != 0;
    told->forks = 0;
}

static void be_counted(int n_threads)
{
    pthread_t threads[N_THREADS];
    uint64_t original = word_at_place();
    mc_identity identity = {"one", "one", "none", 0, 1, 0, 1, 1, MC_MODE_PRELOAD};
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
        fork_in_rank(original);
        while (!told->stops)
            ;
    }
    for (int i = 1; i < n_threads; i++)
        pthread_join(threads[i], NULL);
    signal(SIGALRM, SIG_IGN);
    mc_stop(MC_RANK_FINALIZING);
    told->is_wrong |= word_at_place() != original;
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
    a->counts->n_paths = a->set.n = 1;
    a->set.places[0] = (mc_place){(uint64_t)(uintptr_t)counted_place - map->start + map->offset, 0};
    a->decoder = mc_decoder_new();
    CHECK(mc_stubs_make(&a->set, a->decoder, &a->files, a->counts, &a->ranks) == MC_OK && a->set.n == 1);
    free(maps);
}

static int change(lab *a, uint32_t request)
{
    return mc_patching_change(&a->ranks, request, LIMIT_NS, &a->stopped_ns, &a->wake) == MC_OK;
}

/* A thread that stands still for one change may miss the signal of the next. */
static int insist(lab *a, uint32_t request)
{
    for (int i = 0; i < 50; i++) {
        if (change(a, request))
            return 1;
        nap_ms(10);
    }
    return 0;
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
    /* The place is found again, though its page may be a copy that no file's name stands for. */
    CHECK(mc_stubs_make(&a.set, a.decoder, &a.files, a.counts, &a.ranks) == MC_OK && a.set.n == 1);
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
    a.ranks.rows[0].segment->counting.patches[0].before ^= 1;
    CHECK(!change(&a, MC_PATCH_INSTALL) && !mc_patching_is_patched(&a.ranks));
    CHECK(a.ranks.rows[0].segment->counting.request == MC_PATCH_FAILED);
    CHECK(run_once(&a, 1) == 0);
    close_lab(&a);
}

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
    } tests[] = {{"exact", test_exact},        {"threads", test_threads}, {"fork", test_fork},
                 {"storm", test_storm},        {"unlike", test_unlike},   {"jobs", test_jobs},
                 {"forbidden", test_forbidden}};
    alarm(TEST_LIMIT_S + 20);
    setenv("MPICOLOC_METER", "count", 1);
    told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (argc == 2 && strcmp(argv[1], tests[i].name) == 0)
            tests[i].run();
    return n_failed;
}
