#define _GNU_SOURCE
#include "hooks.h"

#include "options.h"
#include "table.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

__thread uint64_t mc_thread_paused_ns;

static __thread int depth;
static __thread mc_lane *own_lane;

static mc_segment *segment; /* stays mapped for good: another thread may be inside a hook */
static int recording;
static int own_pid;

uint64_t mc_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

mc_segment *mc_own_segment(void)
{
    return __atomic_load_n(&recording, __ATOMIC_ACQUIRE) ? segment : NULL;
}

static int is_node_first(void)
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
    __atomic_store_n(&recording, 0, __ATOMIC_RELEASE);
    if (!__atomic_exchange_n(&said, 1, __ATOMIC_ACQ_REL) && is_node_first())
        fprintf(stderr, "mpicoloc: switched off, the application goes on without a profile: %s (%d)\n", reason, status);
}

static size_t lane_offset(int i)
{
    return offsetof(mc_segment, lanes) + (size_t)i * sizeof(mc_lane);
}

static void segment_path(char *path, const char *key, int world_rank)
{
    char what[32];
    snprintf(what, sizeof what, "%d.seg", world_rank);
    if (mc_shm_path(path, MC_PATH_LEN, key, what) != MC_OK)
        path[0] = '\0';
}

static mc_lane *claim_lane(void)
{
    uint64_t tid = (uint64_t)syscall(SYS_gettid);
    for (int i = 0; i < MC_N_LANES; i++) {
        mc_lane *lane = &segment->lanes[i];
        uint64_t expected = 0;
        if (__atomic_load_n(&lane->owner_tid, __ATOMIC_RELAXED) != 0)
            continue;
        char path[MC_PATH_LEN];
        segment_path(path, segment->key, segment->world_rank);
        if (i > 0 && mc_shm_reserve(path, lane_offset(i), sizeof(mc_lane)) != MC_OK)
            break;
        if (__atomic_compare_exchange_n(&lane->owner_tid, &expected, tid, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
            lane->t_leave = mc_now_ns();
            lane->paused_ns = mc_thread_paused_ns;
            lane->i_window = __atomic_load_n(&segment->sampling.n_windows, __ATOMIC_ACQUIRE);
            return own_lane = lane;
        }
    }
    return NULL;
}

int mc_enter(mc_frame *frame, uint32_t call, void *site)
{
    if (depth)
        return 0;
    depth = 1;
    frame->lane = NULL;
    if (!__atomic_load_n(&recording, __ATOMIC_ACQUIRE))
        return 1;
    mc_lane *lane = own_lane ? own_lane : claim_lane();
    if (!lane) {
        __atomic_fetch_add(&segment->counters.n_lane_overflow, 1, __ATOMIC_RELAXED);
        return 1;
    }
    frame->lane = lane;
    frame->call = call;
    frame->site = site;
    frame->peer = -1;
    lane->in_mpi = 1;
    frame->paused_ns = mc_thread_paused_ns;
    frame->t_enter = mc_now_ns();
    return 1;
}

static uint64_t overlap(uint64_t a0, uint64_t a1, uint64_t b0, uint64_t b1)
{
    uint64_t low = a0 > b0 ? a0 : b0, high = a1 < b1 ? a1 : b1;
    return high > low ? high - low : 0;
}

static mc_cell part_in(const mc_lane *lane, const mc_frame *frame, uint64_t t_leave, uint64_t t0, uint64_t t1)
{
    return (mc_cell){overlap(lane->t_leave, frame->t_enter, t0, t1), overlap(frame->t_enter, t_leave, t0, t1),
                     t_leave >= t0 && t_leave < t1};
}

static void take_off(mc_cell *cell, const mc_cell *part)
{
    cell->comp_ns -= part->comp_ns < cell->comp_ns ? part->comp_ns : cell->comp_ns;
    cell->mpi_ns -= part->mpi_ns < cell->mpi_ns ? part->mpi_ns : cell->mpi_ns;
    cell->n -= part->n < cell->n ? part->n : cell->n;
}

static void add_sample(mc_lane *lane, uint32_t i_row, uint64_t i_window, const mc_cell *cell)
{
    if (!cell->comp_ns && !cell->mpi_ns)
        return;
    if (lane->n_pending && lane->pending[0].i_window != i_window)
        mc_pending_settle(&segment->sampling, lane, 0);
    if (!mc_pending_add(lane, i_row, i_window, cell)) {
        lane->void_window = i_window + 1;
        lane->counters.n_pending_overflow++;
    }
}

/* The part of a cycle that is sampled in shutters goes to the pending list; *rest keeps what lies outside them. */
static void split_at_windows(mc_lane *lane, uint32_t i_row, const mc_frame *frame, uint64_t t_leave, mc_cell *rest)
{
    uint64_t n = __atomic_load_n(&segment->sampling.n_windows, __ATOMIC_ACQUIRE);
    if (n - lane->i_window >= MC_N_WINDOWS)
        lane->i_window = n - MC_N_WINDOWS + 1;
    for (; lane->i_window < n; lane->i_window++) {
        mc_window window = segment->sampling.windows[lane->i_window % MC_N_WINDOWS];
        if (window.begin >= t_leave)
            break;
        mc_cell sample = part_in(lane, frame, t_leave, window.t0, window.t1);
        mc_cell inside = part_in(lane, frame, t_leave, window.begin, window.end);
        add_sample(lane, i_row, lane->i_window, &sample);
        take_off(rest, &inside);
        if (window.end > t_leave)
            break;
    }
}

static void record_cycle(mc_lane *lane, const mc_frame *frame, uint64_t t_leave, uint32_t i_site, uint64_t bytes)
{
    mc_cell cell = {frame->t_enter - lane->t_leave, t_leave - frame->t_enter, 1};
    uint64_t paused_before = frame->paused_ns - lane->paused_ns;
    uint64_t paused_inside = mc_thread_paused_ns - frame->paused_ns;
    cell.comp_ns -= paused_before < cell.comp_ns ? paused_before : cell.comp_ns;
    cell.mpi_ns -= paused_inside < cell.mpi_ns ? paused_inside : cell.mpi_ns;
    lane->counters.comp_ns += cell.comp_ns;
    uint32_t i_row = mc_cycle_find(lane, (uint32_t)lane->i_site, i_site, bytes);
    if (i_row == 0)
        lane->counters.n_cycle_overflow++;
    mc_cycle_row *row = &lane->cycles[i_row];
    if (lane->i_window != __atomic_load_n(&segment->sampling.n_windows, __ATOMIC_ACQUIRE))
        split_at_windows(lane, i_row, frame, t_leave, &cell);
    mc_cell *home = __atomic_load_n(&segment->sampling.alone, __ATOMIC_RELAXED)
                        ? &row->alone
                        : &row->corun[lane->i_window % MC_N_GROUPS];
    mc_cell_add(home, &cell);
}

static void record_event(mc_lane *lane, const mc_frame *frame, uint64_t duration_ns, uint32_t i_site, uint64_t bytes)
{
    /* The ring follows the struct; the index is the rank's, so that the order of threads is kept. */
    mc_event *ring = (mc_event *)(segment + 1);
    uint64_t i = __atomic_fetch_add(&segment->counters.n_events, 1, __ATOMIC_RELAXED);
    if (i >= segment->n_events_max)
        lane->counters.n_events_dropped++;
    ring[i % segment->n_events_max] = (mc_event){.t_ns = frame->t_enter,
                                                 .duration_ns = duration_ns,
                                                 .bytes = bytes,
                                                 .peer = frame->peer,
                                                 .call = (uint16_t)frame->call,
                                                 .i_site = (uint16_t)i_site};
}

void mc_leave(mc_frame *frame, uint64_t sent_bytes, uint64_t recv_bytes)
{
    depth = 0;
    mc_lane *lane = frame->lane;
    if (!lane)
        return;
    uint64_t t_leave = mc_now_ns(), time_ns = t_leave - frame->t_enter, bytes = sent_bytes + recv_bytes;
    uint32_t i_site = mc_site_find(segment, lane, frame->call, frame->site);
    mc_site_row *site = &lane->sites[i_site];
    site->n++;
    site->bytes += bytes;
    site->time_ns += time_ns;
    if (time_ns > site->max_ns)
        site->max_ns = time_ns;
    mc_counters *counters = &lane->counters;
    counters->n_calls++;
    counters->mpi_ns += time_ns;
    counters->sent_bytes += sent_bytes;
    counters->recv_bytes += recv_bytes;
    counters->n_site_overflow += i_site == 0;
    record_cycle(lane, frame, t_leave, i_site, bytes);
    if (segment->n_events_max)
        record_event(lane, frame, time_ns, i_site, bytes);
    lane->i_site = i_site;
    lane->paused_ns = mc_thread_paused_ns;
    lane->in_mpi = 0;
    lane->t_leave = t_leave;
}

void mc_message(mc_frame *frame, int peer, uint64_t bytes)
{
    mc_lane *lane = frame->lane;
    frame->peer = peer;
    if (!lane)
        return;
    uint32_t i = mc_peer_find(lane, peer, bytes);
    lane->counters.n_sent++;
    lane->counters.n_peer_overflow += i == 0;
    lane->peers[i].n++;
    lane->peers[i].bytes += bytes;
}

static void copy_text(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from ? from : "");
}

static void read_command(char *command)
{
    FILE *file = fopen("/proc/self/cmdline", "re");
    size_t n = file ? fread(command, 1, MC_PATH_LEN - 1, file) : 0;
    if (file)
        fclose(file);
    while (n && command[n - 1] == '\0')
        n--;
    for (size_t i = 0; i < n; i++)
        if (command[i] == '\0')
            command[i] = ' ';
    command[n] = '\0';
}

static uint64_t read_start_ticks(void)
{
    char text[1024];
    FILE *file = fopen("/proc/self/stat", "re");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file)
        fclose(file);
    text[n] = '\0';
    char *field = strrchr(text, ')'); /* the name may hold blanks and brackets */
    for (int i = 0; field && i < 20; i++)
        field = strchr(field + 1, ' ');
    return field ? strtoull(field, NULL, 10) : 0;
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
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    s->n_cores = CPU_COUNT(&set);
    for (int i = 0; i < 1024 && i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &set))
            s->cpu_mask[i / 64] |= 1ull << (i % 64);
}

static void fill(mc_segment *s, const mc_identity *identity)
{
    struct timespec wall;
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
    s->pid_start_ticks = read_start_ticks();
    clock_gettime(CLOCK_REALTIME, &wall);
    s->start_realtime_ns = (int64_t)wall.tv_sec * 1000000000 + wall.tv_nsec;
    s->t_init = mc_now_ns();
    s->sampling.alone = 1; /* until the agent has seen the board */
}

int mc_start(const mc_identity *identity)
{
    char path[MC_PATH_LEN];
    double n_events = mc_option_number(MC_OPT_TRACE);
    uint64_t n_events_max = n_events > 0 && n_events < 1e9 ? (uint64_t)n_events : 0;
    size_t ring_bytes = n_events_max * sizeof(mc_event), size_bytes = sizeof(mc_segment) + ring_bytes;
    void *map;
    segment_path(path, identity->key, identity->world_rank);
    int status = mc_shm_map(&map, path, size_bytes, 1);
    if (status == MC_OK && (mc_shm_reserve(path, 0, lane_offset(1)) != MC_OK ||
                            (ring_bytes && mc_shm_reserve(path, sizeof(mc_segment), ring_bytes) != MC_OK))) {
        mc_shm_unmap(map, size_bytes);
        unlink(path);
        status = MC_E_SHM;
    }
    if (status != MC_OK) {
        mc_disable("no room for a segment in the shared-memory folder", status);
        return status;
    }
    segment = map;
    fill(segment, identity);
    segment->size_bytes = size_bytes;
    segment->n_events_max = n_events_max;
    own_pid = segment->pid;
    mc_gate_install(segment); /* without a gate the job is measured by others' pauses, but never paused itself */
    own_lane = NULL;
    claim_lane();
    __atomic_store_n(&segment->state, MC_RANK_RUNNING, __ATOMIC_RELEASE);
    __atomic_store_n(&segment->magic, MC_MAGIC, __ATOMIC_RELEASE);
    __atomic_store_n(&recording, 1, __ATOMIC_RELEASE);
    return MC_OK;
}

void mc_forget(void)
{
    char path[MC_PATH_LEN];
    if (!mc_own_segment())
        return;
    __atomic_store_n(&recording, 0, __ATOMIC_RELEASE);
    segment_path(path, segment->key, segment->world_rank);
    unlink(path);
}

void mc_stop(uint64_t state)
{
    if (!mc_own_segment() || getpid() != own_pid) /* a forked child is not the rank */
        return;
    __atomic_store_n(&recording, 0, __ATOMIC_RELEASE);
    segment->t_finalize = mc_now_ns();
    segment->t_last = segment->t_finalize;
    __atomic_store_n(&segment->state, state, __ATOMIC_RELEASE);
}
