/* Threads of one rank make calls that the tracer writes to a file. What it must hold is printed for the test that reads
   it. Exit code: number of failed checks. */
#define _GNU_SOURCE
#include "../support/check.h"
#include "common/table.h"
#include "guest/hooks.h"
#include "trace/trace.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { TEST_LIMIT_S = 60, N_THREADS = 4, CALL = 7, EVERY = 10 };

static int is_patient;
static int n_calls = 20000;

int mc_gate_install(mc_segment *segment)
{
    segment->gate.signal = 0;
    return MC_OK;
}

static uint64_t n_waiting(void)
{
    const mc_ring *ring = &mc_the_segment->ring;
    return __atomic_load_n(&ring->n_put, __ATOMIC_ACQUIRE) - __atomic_load_n(&ring->n_taken, __ATOMIC_ACQUIRE);
}

static void nap(void)
{
    nanosleep(&(struct timespec){0, 200000}, NULL);
}

/* Call number i sends i bytes to peer i % 100; every tenth receives i bytes as well. */
static void make_call(int i)
{
    mc_frame frame;
    if (!mc_enter(&frame, CALL, (void *)(uintptr_t)(0x1000 + 16 * (i % 3))))
        return;
    mc_message(&frame, i % 100, (uint64_t)i, 0);
    if (i % EVERY == 0)
        mc_received(&frame, i % 100 + 1, (uint64_t)i, 0);
    mc_leave(&frame, (uint64_t)i, i % EVERY ? 0 : (uint64_t)i);
}

static void *make_calls(void *unused)
{
    (void)unused;
    for (int i = 0; i < n_calls; i++) {
        while (is_patient && n_waiting() > mc_the_segment->n_events_max / 2)
            nap();
        make_call(i);
    }
    return NULL;
}

static void make_all_calls(void)
{
    pthread_t threads[N_THREADS];
    for (int i = 0; i < N_THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, make_calls, NULL) == 0);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void start_rank(void)
{
    mc_identity identity = {
        .key = "trace", .job_id = "job", .mpi_library = "none", .world_size = 1, .local_size = 1, .n_nodes = 1};
    CHECK(mc_start(&identity) == MC_OK);
    CHECK(mc_the_segment->ring.is_kept);
}

static void print_counts(void)
{
    mc_segment_settle(mc_the_segment);
    uint64_t dropped = mc_the_segment->counters.n_events_dropped;
    for (int i = 0; i < MC_N_ALL_LANES; i++)
        dropped += mc_lane_tables(mc_the_segment, i).head->counters.n_events_dropped;
    printf("%llu %llu\n", (unsigned long long)mc_the_segment->counters.n_events, (unsigned long long)dropped);
}

static void traced(void)
{
    mc_tracer *tracer = mc_tracer_start("trace");
    CHECK(tracer != NULL);
    make_all_calls();
    mc_stop(MC_RANK_FINALIZING);
    mc_tracer_stop(tracer);
    CHECK(n_waiting() == 0);
    print_counts();
}

static void untraced(void)
{
    make_all_calls();
    mc_stop(MC_RANK_FINALIZING);
    CHECK(n_waiting() == mc_the_segment->n_events_max);
    print_counts();
}

static void full_disk(void)
{
    const struct rlimit small = {4000, 4000};
    signal(SIGXFSZ, SIG_IGN);
    mc_tracer *tracer = mc_tracer_start("trace");
    for (int i = 0; i < 20000 && !__atomic_load_n(&mc_the_segment->ring.n_taken, __ATOMIC_ACQUIRE); i++) {
        make_call(i);
        nap();
    }
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    make_all_calls();
    mc_stop(MC_RANK_FINALIZING);
    mc_tracer_stop(tracer);
    CHECK(mc_the_segment->ring.error != 0);
    print_counts();
}

static void hole(void)
{
    make_call(1);
    mc_the_segment->ring.n_put++;
    make_call(2);
    mc_tracer *tracer = mc_tracer_start("trace");
    mc_stop(MC_RANK_FINALIZING);
    mc_tracer_stop(tracer);
    print_counts();
}

/* At the end of a short job the coordinator's tracer may come after the keeper's: with events left, and with none. */
static void again(void)
{
    for (int i = 1; i <= 3; i++) {
        if (i < 3)
            make_call(i);
        mc_tracer_stop(mc_tracer_start("trace"));
    }
    mc_stop(MC_RANK_FINALIZING);
    print_counts();
}

static FILE *open_trace(const char *mode)
{
    char path[MC_PATH_LEN + 16];
    CHECK(mc_path_beside(path, MC_PATH_LEN, mc_the_segment->out_path, ".trace") == MC_OK);
    strcat(path, "/0.mct");
    return fopen(path, mode);
}

/* A first tracer has written; the file that it left. */
static FILE *file_of_first_tracer(const char *mode)
{
    make_call(1);
    mc_tracer_stop(mc_tracer_start("trace"));
    return open_trace(mode);
}

static void run_second_tracer(FILE *trace)
{
    CHECK(trace && fclose(trace) == 0);
    make_call(2);
    mc_tracer_stop(mc_tracer_start("trace"));
    mc_stop(MC_RANK_FINALIZING);
    print_counts();
}

/* The first tracer is killed while it writes a block. */
static void cut(void)
{
    const mc_trace_block half = {MC_TRACE_MAGIC, MC_TRACE_VERSION, MC_TRACE_EVENTS, 4096, 0};
    FILE *trace = file_of_first_tracer("ab");
    CHECK(trace && fwrite(&half, sizeof half, 1, trace) == 1 && fwrite("half", 4, 1, trace) == 1);
    run_second_tracer(trace);
}

/* Another job has replaced the file since. */
static void other_job(void)
{
    FILE *trace = file_of_first_tracer("r+b");
    CHECK(trace && fseek(trace, sizeof(mc_trace_block), SEEK_SET) == 0 && fwrite("other", 6, 1, trace) == 1);
    run_second_tracer(trace);
}

static int layout(void)
{
    printf("%zu %zu %zu %zu %zu %zu %zu %d %d %d %d\n", sizeof(mc_trace_block), sizeof(mc_trace_head),
           sizeof(mc_trace_chunk), offsetof(mc_trace_chunk, n), offsetof(mc_trace_chunk, t_min),
           offsetof(mc_trace_chunk, t_step), offsetof(mc_trace_chunk, columns), MC_TRACE_MAGIC, MC_TRACE_VERSION,
           MC_TRACE_CHUNK, MC_TRACE_EVENTS);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "layout") == 0)
        return layout();
    alarm(TEST_LIMIT_S);
    start_rank();
    is_patient = argc > 1 && strcmp(argv[1], "patient") == 0;
    n_calls = argc > 2 ? atoi(argv[2]) : n_calls;
    if (argc > 1 && strcmp(argv[1], "untraced") == 0)
        untraced();
    else if (argc > 1 && strcmp(argv[1], "full_disk") == 0)
        full_disk();
    else if (argc > 1 && strcmp(argv[1], "hole") == 0)
        hole();
    else if (argc > 1 && strcmp(argv[1], "again") == 0)
        again();
    else if (argc > 1 && strcmp(argv[1], "cut") == 0)
        cut();
    else if (argc > 1 && strcmp(argv[1], "other_job") == 0)
        other_job();
    else
        traced();
    char path[MC_PATH_LEN];
    if (mc_shm_path(path, sizeof path, "trace", "0.seg") == MC_OK)
        unlink(path);
    return n_failed;
}
