/* What a rank's processor counts over its whole run, and for whom. Exit code: number of failed checks. */
#define _GNU_SOURCE
#include "../support/counted.h"

#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { N_PAGES = 4000, SLACK = 1000, N_TIMES = 5 };

static const char *program; /* what to run anew */

static char *new_pages(void)
{
    size_t size = (size_t)N_PAGES * (size_t)sysconf(_SC_PAGESIZE);
    char *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED);
    madvise(pages, size, MADV_NOHUGEPAGE);
    return pages;
}

static void *touch(void *unused)
{
    volatile char *pages = new_pages();
    for (int i = 0; i < N_PAGES; i++)
        pages[i * sysconf(_SC_PAGESIZE)] = 1;
    return unused;
}

static void *touch_in_two_threads(void *unused)
{
    pthread_t thread;
    pthread_create(&thread, NULL, touch, NULL);
    touch(NULL);
    pthread_join(thread, NULL);
    return unused;
}

static void check_faults(int n_times)
{
    const mc_pmu_row *row = row_of("page-faults");
    CHECK(row != NULL);
    if (!row)
        return;
    fprintf(stderr, "%llu faults for %d pages\n", (unsigned long long)row->value, n_times * N_PAGES);
    CHECK(row->value >= (uint64_t)(n_times * N_PAGES));
    CHECK(row->value <= (uint64_t)(n_times * N_PAGES * 5 / 4 + SLACK)); /* the sanitizer's own pages */
    CHECK(row->enabled_ns > 0 && row->running_ns == row->enabled_ns);
}

static void test_own_faults(void)
{
    begin("page-faults");
    touch(NULL);
    check_faults(1);
}

/* What the kernel touches on the rank's behalf is not user code. */
static void test_kernel_faults(void)
{
    int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    char *pages = new_pages();
    begin("page-faults");
    for (int i = 0; i < N_PAGES; i++)
        CHECK(read(zero, pages + i * sysconf(_SC_PAGESIZE), 1) == 1);
    check_faults(0);
}

static void test_threads(void)
{
    pthread_t threads[2];
    begin("page-faults,minor-faults");
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, touch_in_two_threads, NULL);
    pthread_join(threads[0], NULL);
    touch(NULL);
    pthread_join(threads[1], NULL);
    check_faults(5);
    CHECK(n_rows() == 2);
    /* Nearly all of the process's time is theirs. */
    CHECK(row_of("page-faults")->enabled_ns > mc_the_segment->pmu_cpu_ns * 9 / 10);
}

static void *touch_for_another(void *data)
{
    sem_wait(data);
    for (int i = 0; i < 4; i++)
        touch(NULL);
    return NULL;
}

/* One that was there before is not counted, and the times tell. */
static void test_earlier_thread(void)
{
    sem_t go;
    pthread_t thread;
    sem_init(&go, 0, 0);
    pthread_create(&thread, NULL, touch_for_another, &go);
    begin("page-faults");
    sem_post(&go);
    pthread_join(thread, NULL);
    check_faults(0);
    CHECK(row_of("page-faults")->enabled_ns < mc_the_segment->pmu_cpu_ns / 2);
}

/* A child's work is the rank's; its descriptors are copies, and it keeps none. */
static void test_fork(void)
{
    int status = -1;
    begin("page-faults,minor-faults");
    pid_t pid = fork();
    if (pid == 0) {
        int n_left = n_open(LEAST_FD, LAST_FD);
        for (int i = 0; i < N_TIMES; i++)
            touch(NULL);
        mc_stop(MC_RANK_EXITED);
        _exit(n_left);
    }
    waitpid(pid, &status, 0);
    CHECK(status == 0);
    CHECK(n_open(LEAST_FD, LAST_FD) == 2);
    check_faults(N_TIMES);
    CHECK(row_of("page-faults")->enabled_ns < mc_the_segment->pmu_cpu_ns * 3 / 2); /* whose time is its own, too */
}

/* And so is what a child runs, which gets no descriptor at all. */
static void test_exec(void)
{
    int status = -1;
    begin("page-faults");
    pid_t pid = fork();
    if (pid == 0) {
        execl(program, program, "child", (char *)NULL);
        _exit(98);
    }
    waitpid(pid, &status, 0);
    CHECK(status == 0);
    const mc_pmu_row *row = row_of("page-faults");
    CHECK(row && row->value >= N_PAGES);
}

static int as_child(void)
{
    touch(NULL);
    return n_open(LEAST_FD, LAST_FD);
}

static void test_lists(void)
{
    static const struct {
        const char *events;
        int n;
    } lists[] = {{"off", 0},
                 {"", 0},
                 {"page-fault", 0},
                 {",,x,page-faults,", 1},
                 {"page-faults,nonsense,major-faults", 2},
                 {"page-faults,page-faults", 1},
                 {"r,rg,r0x1,r12345678901234567,page-faults", 1}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        memset(mc_the_segment->pmu, 0, sizeof mc_the_segment->pmu);
        begin(lists[i].events);
        CHECK(mc_pmu_is_wanted() == (i != 0));
        if (lists[i].events[0] != '\0') /* which counts as not given: as many as there are */
            CHECK(n_open(LEAST_FD, LAST_FD) == lists[i].n);
        mc_pmu_stop(mc_the_segment);
        if (lists[i].events[0] != '\0')
            CHECK(n_rows() == lists[i].n);
        CHECK(n_open(LEAST_FD, LAST_FD) == 0);
    }
}

/* By default all that the processor has, and none of them told as 0 where there is none. */
static void test_default(void)
{
    char reason[MC_TEXT_LEN];
    int has_pmu = mc_perf_available(reason, sizeof reason) == MC_OK, before = n_open(0, LEAST_FD);
    begin("on");
    CHECK((n_open(LEAST_FD, LAST_FD) > 0) == has_pmu);
    CHECK(n_open(0, LEAST_FD) == before);
    row_of("");
    CHECK((n_rows() > 0) == has_pmu);
}

/* Instructions of a loop are counted, in turns if they are many events, and a meter's window beside them has no
   turns. */
static void test_hardware(void)
{
    mc_group window;
    mc_ipc counts = {0, 0};
    int is_shared = 1;
    const uint64_t n_loops = 100000000;
    begin("on");
    CHECK(mc_group_open(&window, 0, 1) == MC_OK);
    for (volatile uint64_t i = 0; i < n_loops; i++)
        ;
    CHECK(mc_group_read(&window, &counts, &is_shared) == MC_OK && !is_shared);
    const mc_pmu_row *row = row_of("instructions");
    for (int i = 0; i < n_rows(); i++) {
        const mc_pmu_row *one = &mc_the_segment->pmu[i];
        fprintf(stderr, "%-24s %14llu, %.2f of the time\n", one->name, (unsigned long long)one->value,
                (double)one->running_ns / (double)one->enabled_ns);
    }
    CHECK(row && row->running_ns > 0 && counts.instructions > n_loops);
    if (!row)
        return;
    double value = (double)row->value * (double)row->enabled_ns / (double)row->running_ns;
    CHECK(value > 0.9 * (double)counts.instructions && value < 1.1 * (double)counts.instructions);
}

/* The code of retired instructions counts what their name does. */
static void test_hardware_raw(void)
{
#ifdef __aarch64__
    const char *code = "r08";
#else
    const char *code = "r00c0"; /* of Intel and AMD */
#endif
    char list[MC_NAME_LEN];
    snprintf(list, sizeof list, "instructions,%s", code);
    begin(list);
    for (volatile uint64_t i = 0; i < 10000000; i++)
        ;
    const mc_pmu_row *named = row_of("instructions"), *raw = row_of(code);
    CHECK(n_rows() == 2 && named && raw && named->value > 10000000);
    if (raw && named)
        CHECK(raw->value > named->value * 99 / 100 && raw->value < named->value * 101 / 100);
}

/* A program with a library of that name counts by itself, and is left alone unless the user says what he wants. */
static void test_other_counting(void)
{
    setenv("MPICOLOC_COUNTERS", "on", 1);
    CHECK(mc_pmu_is_wanted() == 1);
    CHECK(dlopen(getenv("OTHER_LIBRARY"), RTLD_NOW) != NULL);
    CHECK(mc_pmu_is_wanted() == 0);
    setenv("MPICOLOC_COUNTERS", "page-faults", 1);
    CHECK(mc_pmu_is_wanted() == 1);
}

static const named_test tests[] = {{"own", test_own_faults},
                                   {"kernel", test_kernel_faults},
                                   {"threads", test_threads},
                                   {"earlier", test_earlier_thread},
                                   {"fork", test_fork},
                                   {"exec", test_exec},
                                   {"lists", test_lists},
                                   {"default", test_default},
                                   {"papi", test_other_counting},
                                   {"hardware", test_hardware},
                                   {"hardware_raw", test_hardware_raw}};

int main(int argc, char **argv)
{
    program = argv[0];
    if (argc > 1 && strcmp(argv[1], "child") == 0)
        return as_child();
    return run_test(argc, argv, tests, sizeof tests / sizeof *tests);
}
