/* rings KEY RANKS RING EVENTS OUT: make-believe ranks, whose calls fill their rings as fast as the agent's thread writes them to
   the folder OUT.trace. Prints events, seconds, and seconds of processor of the writing thread. */
#define _GNU_SOURCE
#include "common/proc.h"
#include "common/ring.h"
#include "draw.h"
#include "trace/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { N_TEMPLATE = 1 << 16, N_RANKS_MAX = 1024, BATCH = 4096 };

static mc_segment *segments[N_RANKS_MAX];
static char paths[N_RANKS_MAX][MC_PATH_LEN];
static mc_event template[N_TEMPLATE];
static uint64_t t_last[N_RANKS_MAX];

/* Steps of a stencil code: messages to neighbours, waits, now and then a reduction. Each t_ns is a time since the one before. */
static void fill_template(void)
{
    static const uint16_t calls[] = {301, 302, 301, 302, 410, 17, 90, 200};
    static const int32_t offsets[] = {1, -1, 16, -16, -1, -1, 1, 16};
    for (int i = 0; i < N_TEMPLATE; i++) {
        int kind = i % 8;
        uint16_t message = kind < 4 ? (kind % 2 ? MC_EVENT_RECEIVED : MC_EVENT_SENT) : 0;
        template[i] = (mc_event){.t_ns = draw_ns(12),
                                 .duration_ns = draw_ns(kind == 4 ? 16 : 10),
                                 .bytes = kind < 4    ? (i % 64 ? 8192 : draw() % 100000)
                                          : kind == 5 ? 8
                                                      : 0,
                                 .peer = kind == 4 || kind == 5 ? -1 : offsets[kind],
                                 .call = (uint16_t)(calls[kind] | message),
                                 .i_site = (uint16_t)(kind + 8 * (i / 8 % 5))};
    }
}

static void make_rank(const char *key, int i, int n_ranks, uint64_t n_events_max, const char *out)
{
    char what[32];
    void *map;
    size_t size = sizeof(mc_segment) + n_events_max * sizeof(mc_event);
    snprintf(what, sizeof what, "%d.seg", i);
    if (mc_shm_path(paths[i], MC_PATH_LEN, key, what) != MC_OK || mc_shm_map(&map, paths[i], size, 1) != MC_OK)
        exit(4);
    mc_segment *s = segments[i] = map;
    s->abi_version = MC_ABI_VERSION;
    s->size_bytes = size;
    snprintf(s->job_id, sizeof s->job_id, "rings");
    snprintf(s->out_path, sizeof s->out_path, "%s", out);
    s->world_rank = s->local_rank = i;
    s->world_size = s->local_size = n_ranks;
    s->n_nodes = 1;
    s->state = MC_RANK_RUNNING;
    s->t_init = t_last[i] = mc_now_ns();
    s->n_events_max = n_events_max;
    s->ring.is_kept = 1;
    __atomic_store_n(&s->magic, MC_MAGIC, __ATOMIC_RELEASE);
}

static void put(mc_segment *s, int i_rank, uint64_t i)
{
    const mc_event *from = &template[(i + 977 * (uint64_t)i_rank) % N_TEMPLATE];
    mc_event *place = (mc_event *)(s + 1) + (i & (s->n_events_max - 1));
    uint64_t tail;
    memcpy(&tail, &from->peer, sizeof tail);
    place->t_ns = t_last[i_rank] += from->t_ns;
    place->duration_ns = from->duration_ns;
    place->bytes = from->bytes;
    __atomic_store_n(mc_event_tail(place), tail | (uint64_t)mc_event_lap(i, s->n_events_max) << 32, __ATOMIC_RELEASE);
}

/* As many as there is room for, up to n; returns their number. */
static uint64_t fill(int i_rank, uint64_t n)
{
    mc_segment *s = segments[i_rank];
    uint64_t i = s->ring.n_put, room = s->n_events_max - (i - __atomic_load_n(&s->ring.n_taken, __ATOMIC_ACQUIRE));
    n = n < room ? n : room;
    n = n < BATCH ? n : BATCH;
    for (uint64_t j = 0; j < n; j++)
        put(s, i_rank, i + j);
    __atomic_store_n(&s->ring.n_put, i + n, __ATOMIC_RELEASE);
    return n;
}

static void be_ranks(int n_ranks, uint64_t n_events)
{
    while (n_events) {
        uint64_t n_now = 0;
        for (int i = 0; i < n_ranks; i++) {
            uint64_t n = fill(i, n_events);
            n_events -= n;
            n_now += n;
        }
        if (!n_now)
            nanosleep(&(struct timespec){0, 100000}, NULL);
    }
    for (int i = 0; i < n_ranks; i++)
        __atomic_store_n(&segments[i]->state, MC_RANK_FINALIZING, __ATOMIC_RELEASE);
    _exit(0);
}

static double cpu_s(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

int main(int argc, char **argv)
{
    if (argc != 6)
        return 2;
    int n_ranks = atoi(argv[2]), status;
    uint64_t n_events = strtoull(argv[4], NULL, 10);
    if (n_ranks < 1 || n_ranks > N_RANKS_MAX)
        return 2;
    fill_template();
    for (int i = 0; i < n_ranks; i++)
        make_rank(argv[1], i, n_ranks, strtoull(argv[3], NULL, 10), argv[5]);
    setenv("MPICOLOC_TRACE", "all", 1);
    double cpu_before = cpu_s();
    uint64_t t0 = mc_now_ns();
    mc_tracer *tracer = mc_tracer_start(argv[1]);
    pid_t pid = fork();
    if (pid == 0)
        be_ranks(n_ranks, n_events);
    waitpid(pid, &status, 0);
    mc_tracer_stop(tracer);
    double wall = 1e-9 * (double)(mc_now_ns() - t0);
    uint64_t n_written = 0;
    for (int i = 0; i < n_ranks; i++) {
        n_written += segments[i]->ring.n_taken;
        unlink(paths[i]);
    }
    printf("%llu %.6f %.6f\n", (unsigned long long)n_written, wall, cpu_s() - cpu_before);
    return tracer ? 0 : 4;
}
