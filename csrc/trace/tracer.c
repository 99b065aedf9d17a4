/* A thread of the node agent's process that writes all events of the job's ranks. */
#define _GNU_SOURCE
#include "common/options.h"
#include "common/proc.h"
#include "common/rank_files.h"
#include "common/ring.h"
#include "trace/trace.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { STACK_BYTES = 256 * 1024, NICE = 5 };

static const uint64_t NAP_MIN_NS = 1000000, NAP_MAX_NS = 10000000;
static const uint64_t FIND_EVERY_NS = 50000000;   /* search until all ranks are there, */
static const uint64_t ALL_WITHIN_NS = 2000000000; /* but open the file after so long even if some are missing */
static const uint64_t OLDEST_NS = 1000000000;     /* write events at the latest when they are so old */

typedef struct traced_rank {
    mc_segment *segment;
    mc_event *events;
    size_t size_bytes;
    uint64_t n_events_max;
    int world_rank;
    uint64_t n_taken, t_taken;
} traced_rank;

struct mc_tracer {
    char key[MC_NAME_LEN];
    pthread_t thread;
    int wake; /* futex: not 0 ends the thread */
    int error;
    int n_ranks, local_size;
    uint64_t nap_ns, t_found, t_first;
    mc_trace_file file;
    mc_trace_encoder *encoder;
    traced_rank ranks[MC_N_NODE_RANKS];
};

static int map_rank(traced_rank *rank, const char *path)
{
    struct stat status;
    void *map;
    if (stat(path, &status) != 0 || (size_t)status.st_size < sizeof(mc_segment) ||
        mc_shm_map(&map, path, (size_t)status.st_size, 0) != MC_OK)
        return MC_E_SHM;
    mc_segment *segment = map;
    size_t room = ((size_t)status.st_size - sizeof(mc_segment)) / sizeof(mc_event);
    /* The magic is stored last, so it is read first: what was read before it may be from before that store. */
    int is_complete = __atomic_load_n(&segment->magic, __ATOMIC_ACQUIRE) == MC_MAGIC;
    uint64_t n = segment->n_events_max;
    if (!is_complete || segment->abi_version != MC_ABI_VERSION || !segment->ring.is_kept || n == 0 || (n & (n - 1)) ||
        n > room) {
        mc_shm_unmap(map, (size_t)status.st_size);
        return MC_E_ABI;
    }
    *rank = (traced_rank){.segment = segment,
                          .events = (mc_event *)(segment + 1),
                          .size_bytes = (size_t)status.st_size,
                          .n_events_max = n,
                          .n_taken = segment->ring.n_taken};
    return MC_OK;
}

static void add_rank(void *data, int world_rank, const char *path)
{
    mc_tracer *tracer = data;
    traced_rank *rank = &tracer->ranks[tracer->n_ranks];
    if (tracer->n_ranks == MC_N_NODE_RANKS)
        return;
    for (int i = 0; i < tracer->n_ranks; i++)
        if (tracer->ranks[i].world_rank == world_rank)
            return;
    if (map_rank(rank, path) != MC_OK)
        return;
    rank->world_rank = world_rank;
    rank->t_taken = mc_now_ns();
    tracer->local_size = rank->segment->local_size;
    tracer->t_first = tracer->n_ranks ? tracer->t_first : rank->t_taken;
    tracer->n_ranks++;
}

static void find_ranks(mc_tracer *tracer, uint64_t now)
{
    if ((tracer->n_ranks && tracer->n_ranks >= tracer->local_size) || now < tracer->t_found + FIND_EVERY_NS)
        return;
    tracer->t_found = now;
    mc_rank_files_scan(tracer->key, add_rank, tracer);
}

/* From here on nothing is taken: rings fill up, and count the events that they refuse. */
static void give_up(mc_tracer *tracer, int error)
{
    tracer->error = error;
    for (int i = 0; i < tracer->n_ranks; i++)
        __atomic_store_n(&tracer->ranks[i].segment->ring.error, (uint64_t)error, __ATOMIC_RELEASE);
}

static int open_file(mc_tracer *tracer)
{
    const traced_rank *first = &tracer->ranks[0];
    uint64_t n_taken = 0; /* by another tracer: the keeper's, or the coordinator's */
    for (int i = 0; i < tracer->n_ranks; i++) {
        n_taken += tracer->ranks[i].n_taken;
        if (tracer->ranks[i].world_rank < first->world_rank)
            first = &tracer->ranks[i];
    }
    int error = mc_trace_file_open(&tracer->file, first->segment, n_taken > 0);
    if (error)
        give_up(tracer, error);
    return !error;
}

static int has_events(const mc_tracer *tracer)
{
    for (int i = 0; i < tracer->n_ranks; i++)
        if (__atomic_load_n(&tracer->ranks[i].segment->ring.n_put, __ATOMIC_ACQUIRE) != tracer->ranks[i].n_taken)
            return 1;
    return 0;
}

static int is_ready(mc_tracer *tracer, uint64_t now, int is_last)
{
    if (tracer->error || tracer->n_ranks == 0)
        return 0;
    if (tracer->file.fd >= 0)
        return 1;
    if (tracer->n_ranks < tracer->local_size && now < tracer->t_first + ALL_WITHIN_NS && !is_last)
        return 0;
    return has_events(tracer) && open_file(tracer);
}

/* Number of complete, adjacent events from place i on, at most n. */
static uint32_t n_whole(const traced_rank *rank, uint64_t i, uint64_t n)
{
    uint64_t at = i & (rank->n_events_max - 1), n_side = rank->n_events_max - at, found = 0;
    uint64_t lap = (uint64_t)mc_event_lap(i, rank->n_events_max) << 32, mask = (uint64_t)MC_EVENT_LAP << 32;
    n = n < n_side ? n : n_side;
    n = n < MC_TRACE_CHUNK ? n : MC_TRACE_CHUNK;
    while (found < n && (__atomic_load_n(mc_event_tail(&rank->events[at + found]), __ATOMIC_ACQUIRE) & mask) == lap)
        found++;
    return (uint32_t)found;
}

static int put_chunk(mc_tracer *tracer, traced_rank *rank, uint32_t n)
{
    uint32_t size_bytes;
    const mc_event *events = &rank->events[rank->n_taken & (rank->n_events_max - 1)];
    const void *payload = mc_trace_encode(tracer->encoder, rank->world_rank, events, n, &size_bytes);
    int error = mc_trace_file_put(&tracer->file, MC_TRACE_EVENTS, payload, size_bytes);
    if (error) {
        give_up(tracer, error);
        return 0;
    }
    rank->n_taken += n;
    __atomic_store_n(&rank->segment->ring.n_taken, rank->n_taken, __ATOMIC_RELEASE);
    return 1;
}

/* A thread that ended between reserving a place and filling it leaves a hole. */
static void pass_hole(traced_rank *rank)
{
    rank->n_taken++;
    __atomic_fetch_add(&rank->segment->counters.n_events_dropped, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&rank->segment->ring.n_taken, rank->n_taken, __ATOMIC_RELEASE);
}

/* Returns how full the ring was, in parts of 16. */
static int take(mc_tracer *tracer, traced_rank *rank, uint64_t now, int is_last)
{
    uint64_t n = __atomic_load_n(&rank->segment->ring.n_put, __ATOMIC_ACQUIRE) - rank->n_taken;
    int is_running = __atomic_load_n(&rank->segment->state, __ATOMIC_ACQUIRE) == MC_RANK_RUNNING;
    if (n == 0 || n > rank->n_events_max) { /* else the ring is damaged */
        rank->t_taken = now;
        return 0;
    }
    int fill = (int)(16 * n / rank->n_events_max);
    if (!is_last && is_running && fill < 2 && n < MC_TRACE_CHUNK && now < rank->t_taken + OLDEST_NS)
        return fill;
    rank->t_taken = now;
    while (n) {
        uint32_t n_now = n_whole(rank, rank->n_taken, n);
        if (n_now && !put_chunk(tracer, rank, n_now))
            break;
        if (!n_now && !is_last)
            break;
        if (!n_now)
            pass_hole(rank);
        n -= n_now ? n_now : 1;
    }
    return fill;
}

static void turn(mc_tracer *tracer, int is_last)
{
    uint64_t now = mc_now_ns();
    int fullest = 0;
    find_ranks(tracer, is_last ? UINT64_MAX : now);
    if (!is_ready(tracer, now, is_last))
        return;
    for (int i = 0; i < tracer->n_ranks && !tracer->error; i++) {
        int fill = take(tracer, &tracer->ranks[i], now, is_last);
        fullest = fill > fullest ? fill : fullest;
    }
    if (fullest >= 4)
        tracer->nap_ns = NAP_MIN_NS;
    else if (fullest < 2 && tracer->nap_ns < NAP_MAX_NS)
        tracer->nap_ns *= 2;
    mc_trace_file_push(&tracer->file, now);
}

static void *be_tracer(void *data)
{
    mc_tracer *tracer = data;
    pthread_setname_np(pthread_self(), "mpicoloc-trace");
    /* Low priority: the agent is another thread of this process, and must be in time. */
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
    while (!__atomic_load_n(&tracer->wake, __ATOMIC_ACQUIRE)) {
        turn(tracer, 0);
        mc_nap_until(mc_now_ns() + tracer->nap_ns, &tracer->wake);
    }
    turn(tracer, 1);
    return NULL;
}

static int start_thread(mc_tracer *tracer)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&tracer->thread, &attributes, be_tracer, tracer);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

mc_tracer *mc_tracer_start(const char *key)
{
    if (strcmp(mc_option_text(MC_OPT_TRACE), "all") != 0)
        return NULL;
    mc_tracer *tracer = calloc(1, sizeof *tracer);
    if (!tracer)
        return NULL;
    snprintf(tracer->key, sizeof tracer->key, "%s", key);
    tracer->file.fd = -1;
    tracer->nap_ns = NAP_MIN_NS;
    tracer->encoder = mc_trace_encoder_new();
    if (!tracer->encoder || start_thread(tracer) != 0) {
        free(tracer->encoder);
        free(tracer);
        return NULL;
    }
    return tracer;
}

void mc_tracer_stop(mc_tracer *tracer)
{
    if (!tracer)
        return;
    mc_wake(&tracer->wake);
    pthread_join(tracer->thread, NULL);
    mc_trace_file_close(&tracer->file);
    for (int i = 0; i < tracer->n_ranks; i++)
        mc_shm_unmap(tracer->ranks[i].segment, tracer->ranks[i].size_bytes);
    free(tracer->encoder);
    free(tracer);
}
