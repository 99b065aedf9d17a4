/* A rank's segment: created in MPI_Init, closed when the rank ends. */
#define _GNU_SOURCE
#include "guest/hooks.h"
#include "guest/count/patch.h"

#include "common/counters/pmu.h"
#include "common/counters/tally.h"
#include "common/options.h"
#include "common/proc.h"
#include "common/table.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Programs find out from this symbol whether this library is loaded (mpicoloc/regions.py). */
__attribute__((visibility("default"))) const int mc_is_mpicoloc = MC_ABI_VERSION;

int mc_recording;
mc_segment *mc_the_segment; /* never unmapped, because another thread may be inside a hook */

static int own_pid;

mc_segment *mc_own_segment(void)
{
    return __atomic_load_n(&mc_recording, __ATOMIC_ACQUIRE) ? mc_the_segment : NULL;
}

int mc_is_node_first(void)
{
    static const char *const local_rank_envs[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"};
    for (size_t i = 0; i < sizeof local_rank_envs / sizeof *local_rank_envs; i++) {
        const char *text = getenv(local_rank_envs[i]);
        if (text)
            return strcmp(text, "0") == 0;
    }
    return 1;
}

void mc_disable(const char *reason, int status)
{
    static int said;
    __atomic_store_n(&mc_recording, 0, __ATOMIC_RELEASE);
    if (__atomic_exchange_n(&said, 1, __ATOMIC_ACQ_REL) || !mc_is_node_first())
        return;
    fprintf(stderr, "mpicoloc: switched off, the application goes on without a profile: %s (%d)\n", reason, status);
    mc_reason_given();
}

void mc_reason_given(void)
{
    const char *mark = getenv("MPICOLOC_REASON_MARK");
    if (mark)
        unlink(mark);
}

static void segment_path(char *path, const char *key, int world_rank)
{
    char what[32];
    snprintf(what, sizeof what, "%d.seg", world_rank);
    if (mc_shm_path(path, MC_PATH_LEN, key, what) != MC_OK)
        path[0] = '\0';
}

int mc_lane_reserve(int i_lane)
{
    char path[MC_PATH_LEN];
    segment_path(path, mc_the_segment->key, mc_the_segment->world_rank);
    return mc_shm_reserve(path, mc_lane_offset(i_lane), mc_lane_size(i_lane));
}

static void copy_text(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from ? from : "");
}

static void read_command(char *command)
{
    ssize_t n = mc_proc_read_text("/proc/self/cmdline", command, MC_PATH_LEN);
    while (n > 0 && command[n - 1] == '\0')
        n--;
    for (ssize_t i = 0; i < n; i++)
        if (command[i] == '\0')
            command[i] = ' ';
}

static void set_out_path(mc_segment *s)
{
    const char *out = mc_option_text(MC_OPT_OUT);
    char cwd[MC_PATH_LEN / 2], name[MC_NAME_LEN + 32];
    if (out && out[0] == '/') {
        copy_text(s->out_path, sizeof s->out_path, out);
        return;
    }
    if (!getcwd(cwd, sizeof cwd))
        copy_text(cwd, sizeof cwd, "/tmp");
    snprintf(name, sizeof name, "mpicoloc-%.*s.h5", MC_NAME_LEN, s->job_id);
    snprintf(s->out_path, sizeof s->out_path, "%s/%.*s", cwd, MC_PATH_LEN / 2 - 2, out ? out : name);
}

static void set_processors(mc_segment *s)
{
    cpu_set_t set[8]; /* the kernel rejects a set that is smaller than its own */
    memset(set, 0, sizeof set);
    sched_getaffinity(0, sizeof set, set);
    s->n_cores = CPU_COUNT_S(sizeof set, set);
    memcpy(s->cpu_mask, set, sizeof s->cpu_mask);
}

static void fill(mc_segment *s, const mc_identity *identity)
{
    mc_proc_stat stat;
    s->abi_version = MC_ABI_VERSION;
    copy_text(s->key, sizeof s->key, identity->key);
    copy_text(s->job_id, sizeof s->job_id, identity->job_id);
    copy_text(s->mpi_library, sizeof s->mpi_library, identity->mpi_library);
    gethostname(s->hostname, sizeof s->hostname - 1);
    read_command(s->command);
    set_out_path(s);
    set_processors(s);
    s->world_rank = identity->world_rank;
    s->world_size = identity->world_size;
    s->local_rank = identity->local_rank;
    s->local_size = identity->local_size;
    s->n_nodes = identity->n_nodes;
    s->mode = identity->mode;
    s->pid = getpid();
    if (mc_proc_read_stat(&stat, s->pid) == MC_OK)
        s->pid_start_ticks = stat.start_ticks;
    s->start_realtime_ns = (int64_t)mc_clock_ns(CLOCK_REALTIME);
    s->t_init = mc_now_ns();
    s->n_lanes = 1;
    s->sampling.alone = 1; /* assumed until the agent has seen the board */
}

/* A forked child shares the tables but is not the rank, so it must not record. */
static void forget_in_child(void)
{
    mc_lane_forget();
    mc_pmu_forget();
    mc_patch_forget();
    __atomic_store_n(&mc_recording, 0, __ATOMIC_RELEASE);
}

/* Number of events in the ring; a power of 2 for a full trace. */
static uint64_t ring_size(int is_kept)
{
    double n = mc_option_number(is_kept ? MC_OPT_TRACE_RING : MC_OPT_TRACE);
    uint64_t n_events_max = n > 0 && n < 1e9 ? (uint64_t)n : 0;
    if (!is_kept)
        return n_events_max;
    return n_events_max > 64 ? 1ull << (64 - __builtin_clzll(n_events_max - 1)) : 64;
}

/* 0 if /proc belongs to another PID namespace, as it does after unshare without --mount-proc. */
static int has_own_proc(void)
{
    char pid[32] = "";
    return readlink("/proc/self", pid, sizeof pid - 1) > 0 && atoi(pid) == (int)getpid();
}

/* Create the rank's file, with room for the segment head, the first lane and the ring. */
static int make_segment(const mc_identity *identity, size_t ring_bytes)
{
    char path[MC_PATH_LEN];
    void *map;
    size_t size_bytes = sizeof(mc_segment) + ring_bytes;
    segment_path(path, identity->key, identity->world_rank);
    int status = mc_shm_map(&map, path, size_bytes, 1);
    if (status == MC_OK && (mc_shm_reserve(path, 0, mc_lane_offset(1)) != MC_OK ||
                            (ring_bytes && mc_shm_reserve(path, sizeof(mc_segment), ring_bytes) != MC_OK))) {
        mc_shm_unmap(map, size_bytes);
        unlink(path);
        status = MC_E_SHM;
    }
    if (status == MC_OK)
        mc_the_segment = map;
    return status;
}

int mc_start(const mc_identity *identity)
{
    int is_kept = strcmp(mc_option_text(MC_OPT_TRACE), "all") == 0;
    uint64_t n_events_max = ring_size(is_kept);
    size_t ring_bytes = n_events_max * sizeof(mc_event);
    if (!has_own_proc()) {
        mc_disable("/proc does not show this process: mount its PID namespace's /proc, as unshare --mount-proc does",
                   MC_E_GONE);
        return MC_E_GONE;
    }
    int status = make_segment(identity, ring_bytes);
    if (status != MC_OK) {
        mc_disable(status == MC_E_LIMIT ? "the file size limit (ulimit -f) is too low for a rank's data"
                                        : "no room for a segment in the shared-memory folder",
                   status);
        return status;
    }
    mc_segment *segment = mc_the_segment;
    fill(segment, identity);
    segment->size_bytes = sizeof *segment + ring_bytes;
    segment->n_events_max = n_events_max;
    segment->ring.is_kept = (uint64_t)is_kept;
    own_pid = segment->pid;
    /* Without a gate this job can be measured while other jobs pause, but cannot be paused itself. */
    if (mc_gate_install(segment) == MC_OK)
        mc_patch_open(segment);
    mc_lane_claim();
    pthread_atfork(NULL, NULL, forget_in_child);
    __atomic_store_n(&segment->state, MC_RANK_RUNNING, __ATOMIC_RELEASE);
    __atomic_store_n(&segment->magic, MC_MAGIC, __ATOMIC_RELEASE);
    __atomic_store_n(&mc_recording, 1, __ATOMIC_RELEASE);
    return MC_OK;
}

void mc_forget(void)
{
    char path[MC_PATH_LEN];
    if (!mc_own_segment())
        return;
    __atomic_store_n(&mc_recording, 0, __ATOMIC_RELEASE);
    segment_path(path, mc_the_segment->key, mc_the_segment->world_rank);
    unlink(path);
}

void mc_stop(uint64_t state)
{
    if (!mc_own_segment() || getpid() != own_pid) /* a forked child is not the rank */
        return;
    __atomic_store_n(&mc_recording, 0, __ATOMIC_RELEASE);
    mc_self.calls_until_timed = 0;
    mc_patch_close();
    mc_tally_close();
    mc_pmu_stop(mc_the_segment);
    /* MPI_Abort and exit may be called on a signal handler's small stack: in that case threads are not read, because
       that takes 12 KiB of stack. */
    mc_usage_read(&mc_the_segment->used_at_finalize, state == MC_RANK_FINALIZING);
    mc_the_segment->t_finalize = mc_now_ns();
    mc_the_segment->t_last = mc_the_segment->t_finalize;
    __atomic_store_n(&mc_the_segment->state, state, __ATOMIC_RELEASE);
}
