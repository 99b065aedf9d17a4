/* A rank whose code is changed, and what the agent knows of it: part of test_count.c. */
#ifndef MC_TEST_COUNT_LAB_H
#define MC_TEST_COUNT_LAB_H

#include "agent/count/patching.h"
#include "agent/count/stubs.h"
#include "node.h"

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

static const uint8_t minus_one[] = {0x83, 0xef, 0x01}, other_minus_one[] = {0x83, 0xc7, 0xff};

static int has_wide_stores(void)
{
    return __builtin_cpu_supports("avx");
}

static unsigned pass_many(unsigned n)
{
    return count_passes(n);
}

enum { OTHER_CALL = 1, OTHER_SLEEP, OTHER_CODE, OTHER_READER, OTHER_FULL, OTHER_FREE, OTHER_MAP };

/* What a rank is told to do, and what came out. */
typedef struct orders {
    volatile int n_runs, n_done, forks, stops, is_wrong, has_timer;
    volatile int is_ready;
    volatile int other;
    volatile uint64_t address; /* of a page that it maps */
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
    uintptr_t begin = (uintptr_t)count_passes & ~(uintptr_t)4095;
    const void *code = (const void *)(uintptr_t)counted_place;
    uint8_t *at = memmem(code, N_CODE, minus_one, sizeof minus_one),
            *back = memmem(code, N_CODE, other_minus_one, sizeof minus_one);
    if ((!at && !back) || mprotect((void *)begin, 8192, PROT_READ | PROT_WRITE | PROT_EXEC) != 0)
        _exit(4);
    memcpy(at ? at : back, at ? other_minus_one : minus_one, sizeof minus_one);
    __builtin___clear_cache((char *)begin, (char *)begin + 8192);
    mprotect((void *)begin, 8192, PROT_READ | PROT_EXEC);
}

/* Then the kernel gives no page the right to be written, also not of a copy, until that ends. */
static void limit_writable_memory(int is_limited)
{
    uintptr_t begin = (uintptr_t)count_passes & ~(uintptr_t)4095;
    struct rlimit limit;
    if (getrlimit(RLIMIT_DATA, &limit) != 0 || mprotect((void *)begin, 8192, PROT_READ | PROT_EXEC) != 0)
        _exit(4);
    limit.rlim_cur = is_limited ? 4096 : limit.rlim_max;
    setrlimit(RLIMIT_DATA, &limit);
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
    else if (told->other == OTHER_FULL || told->other == OTHER_FREE)
        limit_writable_memory(told->other == OTHER_FULL);
    else if (told->other == OTHER_MAP)
        told->is_wrong |= mmap((void *)told->address, MC_STUB_PAGE_BYTES, PROT_READ,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != (void *)told->address;
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
    int n_threads;
    mc_job_ranks ranks;
    mc_counts *counts;
    mc_decoder *decoder;
    mc_program_files files;
    mc_place_set set;
    uint64_t stopped_ns;
    int wake;
} lab;

/* The file that this address is of becomes the first one of the counts; returns what makes an address an offset. */
static uint64_t name_file(mc_counts *counts, pid_t pid, const char *address)
{
    mc_maps *maps = malloc(sizeof *maps);
    CHECK(mc_maps_read(maps, pid) == MC_OK);
    const mc_map *map = mc_maps_find(maps, (uint64_t)(uintptr_t)address);
    CHECK(map != NULL);
    snprintf(counts->paths[0], MC_TEXT_LEN, "%s", maps->paths[map->i_path]);
    uint64_t to_offset = map->offset - map->start;
    free(maps);
    return to_offset;
}

static void open_lab(lab *a, int n_threads)
{
    *a = (lab){.n_threads = n_threads};
    if ((a->pid = child()) == 0)
        be_counted(n_threads);
    WAIT_FOR(told->is_ready == (told->forks ? 1 : n_threads), 20);
    CHECK(mc_job_ranks_open(&a->ranks, "one") == MC_OK);
    mc_job_ranks_find(&a->ranks);
    mc_job_ranks_check(&a->ranks, mc_now_ns());
    CHECK(a->ranks.n == 1 && a->ranks.n_alive == 1);
    a->counts = calloc(1, sizeof *a->counts);
    uint64_t to_offset = name_file(a->counts, a->pid, counted_place), n_places = has_wide_stores() ? 2 : 1;
    a->counts->n_paths = 1;
    a->set.n = 2;
    a->set.places[0] = (mc_place){.offset = (uint64_t)(uintptr_t)counted_place + to_offset};
    a->set.places[1] = (mc_place){.offset = (uint64_t)(uintptr_t)straddling_place + to_offset};
    a->decoder = mc_decoder_new();
    CHECK(mc_stubs_make(&a->set, a->decoder, &a->files, a->counts, &a->ranks) == MC_OK && a->set.n == n_places);
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

static uint64_t run_once(lab *a)
{
    mc_snapshot begin = {NULL, 0, 0, 0}, end = {NULL, 0, 0, 0};
    uint64_t sums[MC_N_PLACES];
    int n_done = told->n_done;
    CHECK(mc_snapshot_take(&begin, &a->ranks) == MC_OK);
    told->n_runs++;
    CHECK_SOON(told->n_done == n_done + a->n_threads, 30);
    CHECK(mc_snapshot_take(&end, &a->ranks) == MC_OK && end.n == begin.n);
    mc_snapshot_between(&begin, &end, sums);
    mc_snapshot_free(&begin);
    mc_snapshot_free(&end);
    CHECK(a->set.n == 1 || sums[1] == sums[0]);
    return sums[0];
}

#endif
