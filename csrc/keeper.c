/* mpicoloc-keeper KEY PYTHON: outlives the ranks of one job on one node. Is the job's node agent, has the profile
   written when all ranks wait for it, has a partial one written when they vanish,
   and removes the job's shared memory. */
#define _GNU_SOURCE
#include "board.h"
#include "hooks.h"
#include "keeper.h"
#include "pmu.h"
#include "proc.h"
#include "trace.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* C libraries, and headers of the kernel, may be older than these, whatever kernel runs. They have other numbers on these
   three only. */
#if !defined __alpha__ && !defined __mips__ && !defined __ia64__
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#endif

enum { POLL_MS = 500, BUSY_POLL_MS = 20, AGENT_POLL_MS = 2, N_FDS_MAX = 65536 };

/* How long to wait for a first segment, for the others, and for a coordinator to write what it can. */
static const uint64_t FIRST_RANK_NS = 10000000000u, OTHER_RANKS_NS = 2000000000u, COORDINATOR_NS = 5000000000u;

typedef struct kept_rank {
    mc_segment *segment;
    int world_rank, pidfd, alive;
} kept_rank;

typedef struct keeper {
    const char *key, *python;
    mc_node *node;
    int n_ranks, n_alive, n_finalizing, n_final, local_size, mode, tried, has_agent;
    uint64_t t_start;
    mc_checkpoint checkpoint;
    kept_rank ranks[MC_N_NODE_RANKS];
} keeper;

static int path_of(char *path, const keeper *k, const char *what)
{
    return mc_shm_path(path, MC_PATH_LEN, k->key, what);
}

/* ---- looking ---- */

static void *map_own(const char *path, size_t size_bytes)
{
    void *map;
    if (mc_shm_map(&map, path, size_bytes, 0) != MC_OK)
        return NULL;
    if (__atomic_load_n((uint32_t *)map, __ATOMIC_ACQUIRE) == MC_MAGIC && ((uint32_t *)map)[1] == MC_ABI_VERSION)
        return map;
    mc_shm_unmap(map, size_bytes);
    return NULL;
}

static void add_rank(void *data, const char *name)
{
    keeper *k = data;
    char path[MC_PATH_LEN], what[32], *end;
    long world_rank = strtol(name, &end, 10);
    if (*end || k->n_ranks == MC_N_NODE_RANKS)
        return;
    for (int i = 0; i < k->n_ranks; i++)
        if (k->ranks[i].world_rank == world_rank)
            return;
    snprintf(what, sizeof what, "%ld.seg", world_rank);
    mc_segment *segment = path_of(path, k, what) == MC_OK ? map_own(path, sizeof(mc_segment)) : NULL;
    if (!segment)
        return;
    kept_rank *rank = &k->ranks[k->n_ranks++];
    /* A pidfd of a pid that was reused meanwhile is refused by the start time. */
    *rank = (kept_rank){segment, (int)world_rank, (int)syscall(SYS_pidfd_open, segment->pid, 0), 1};
    rank->alive = mc_proc_alive(segment->pid, segment->pid_start_ticks);
    k->local_size = segment->local_size;
    k->mode = segment->mode;
}

static void find_ranks(keeper *k)
{
    char dir[MC_PATH_LEN], prefix[MC_NAME_LEN + 16];
    if ((k->local_size && k->n_ranks >= k->local_size) || mc_shm_path(dir, sizeof dir, "", "") != MC_OK)
        return;
    *strrchr(dir, '/') = '\0';
    snprintf(prefix, sizeof prefix, "mpicoloc.%s.", k->key);
    mc_dir_scan(dir, prefix, ".seg", add_rank, k);
}

static void find_node(keeper *k)
{
    char path[MC_PATH_LEN];
    if (!k->node && path_of(path, k, "node") == MC_OK)
        k->node = map_own(path, sizeof(mc_node));
    if (k->node)
        k->node->keeper_pid = (int32_t)getpid();
}

static int still_alive(const kept_rank *rank)
{
    struct pollfd event = {rank->pidfd, POLLIN, 0};
    if (rank->pidfd >= 0)
        return poll(&event, 1, 0) == 0;
    return mc_proc_alive(rank->segment->pid, rank->segment->pid_start_ticks);
}

static void look(keeper *k)
{
    find_ranks(k);
    find_node(k);
    k->n_alive = k->n_finalizing = k->n_final = 0;
    for (int i = 0; i < k->n_ranks; i++) {
        kept_rank *rank = &k->ranks[i];
        int final = __atomic_load_n(&rank->segment->state, __ATOMIC_ACQUIRE) == MC_RANK_FINALIZING;
        rank->alive = rank->alive && still_alive(rank);
        k->n_alive += rank->alive;
        k->n_finalizing += rank->alive && final;
        k->n_final += final;
    }
}

/* All segments are made before the keeper is started; what is missing for long has failed. */
static int may_come(const keeper *k, int is_missing)
{
    return is_missing && mc_now_ns() < k->t_start + OTHER_RANKS_NS;
}

static void on_kick(__attribute__((unused)) int signal)
{
}

/* The first rank kicks when all ranks are in MPI_Finalize. SIGURG, because a process that does not expect it is not
   harmed; blocked but in rest(), so that no kick is lost. */
static void expect_kicks(void)
{
    struct sigaction action = {.sa_handler = on_kick};
    sigset_t kick;
    sigemptyset(&kick);
    sigaddset(&kick, SIGURG);
    sigprocmask(SIG_BLOCK, &kick, NULL);
    sigaction(SIGURG, &action, NULL);
}

static void rest(const keeper *k)
{
    struct pollfd events[MC_N_NODE_RANKS];
    nfds_t n = 0;
    /* Without the agent's file, a short job finds nobody to kick. */
    int is_soon = may_come(k, k->n_ranks < k->local_size || !k->node) || (k->n_finalizing && !k->tried);
    /* The agent makes it within a millisecond, and a rank that ends at once waits for it. */
    int is_awaited = k->has_agent && !k->node && may_come(k, 1);
    long timeout_ms = is_awaited ? AGENT_POLL_MS : is_soon ? BUSY_POLL_MS : POLL_MS;
    struct timespec timeout = {0, timeout_ms * 1000000};
    sigset_t none;
    sigemptyset(&none);
    for (int i = 0; i < k->n_ranks; i++)
        if (k->ranks[i].alive && k->ranks[i].pidfd >= 0)
            events[n++] = (struct pollfd){k->ranks[i].pidfd, POLLIN, 0};
    ppoll(events, n, &timeout, &none);
}

/* ---- the profile ---- */

static uint64_t profile_state(const keeper *k)
{
    return k->node ? __atomic_load_n(&k->node->profile, __ATOMIC_ACQUIRE) : MC_PROFILE_NONE;
}

/* The first rank waits on the node file, also when the agent could not make one. */
static void make_node(keeper *k)
{
    char path[MC_PATH_LEN];
    void *map;
    if (k->node || path_of(path, k, "node") != MC_OK || mc_shm_map(&map, path, sizeof(mc_node), 1) != MC_OK)
        return;
    /* Where there was no agent, memory may be what lacked: a SIGBUS here would leave all the job's files behind. There
       are no shutters, so their room stays a hole. */
    if (mc_shm_reserve(path, 0, offsetof(mc_node, shutters)) != MC_OK) {
        mc_shm_unmap(map, sizeof(mc_node));
        unlink(path);
        return;
    }
    mc_node *node = map;
    node->abi_version = MC_ABI_VERSION;
    node->size_bytes = sizeof *node;
    snprintf(node->key, sizeof node->key, "%s", k->key);
    snprintf(node->meter_reason, sizeof node->meter_reason, "there was no node agent");
    node->t_open = node->t_last = mc_now_ns();
    __atomic_store_n(&node->magic, MC_MAGIC, __ATOMIC_RELEASE);
    find_node(k);
}

/* The agent lives here and not in a rank because this process has a session of its own: Linux shares processors first
   among sessions (autogroup), so on a full node it wakes within 0.05 ms, where a rank's thread needs 10 ms. */
static void keep_agent(keeper *k)
{
    /* A node file before that is of a coordinator that did not wait; a second agent would take it away. */
    if (k->has_agent || k->n_ranks == 0 || k->n_alive == 0 || k->node)
        return;
    k->has_agent = 1;
    mc_agent_thread_start(k->key, k->ranks[0].segment->job_id);
}

static void write_profile(keeper *k, int partial)
{
    k->tried = 1;
    if (!k->has_agent && k->mode == MC_MODE_PRELOAD) /* of a job so short that there was none */
        mc_tracer_stop(mc_tracer_start(k->key));
    find_node(k); /* the agent's, since our last look: the ranks look into it already */
    make_node(k);
    pid_t pid = mc_writer_start(k->python, "mpicoloc.run.assemble", k->key, partial ? "--partial" : NULL, 0);
    int ok = pid > 0 && mc_writer_wait(pid);
    uint64_t none = MC_PROFILE_NONE;
    if (k->node)
        __atomic_compare_exchange_n(&k->node->profile, &none, ok ? MC_PROFILE_WRITTEN : MC_PROFILE_FAILED, 0,
                                    __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* Every rank that still lives waits in MPI_Finalize, and all that were to come have come. */
static int all_wait(const keeper *k)
{
    return k->n_alive && k->n_finalizing == k->n_alive && !may_come(k, k->n_ranks < k->local_size);
}

static int coordinator_alive(const keeper *k)
{
    mc_proc_stat stat;
    int pid = k->node ? k->node->coordinator_pid : 0;
    if (!pid && k->node && k->node->agent_pid != (int)getpid())
        pid = k->node->agent_pid; /* it did not wait for us */
    return pid && mc_proc_read_stat(&stat, pid, 0) == MC_OK && stat.state != 'Z';
}

static void wait_coordinator(keeper *k)
{
    uint64_t end = mc_now_ns() + COORDINATOR_NS;
    while (k->mode == MC_MODE_WRAP && profile_state(k) == MC_PROFILE_NONE && mc_now_ns() < end && coordinator_alive(k))
        poll(NULL, 0, BUSY_POLL_MS);
}

static void watch(keeper *k)
{
    for (;;) {
        look(k);
        if (k->n_ranks == 0 && mc_now_ns() > k->t_start + FIRST_RANK_NS)
            return;
        if (k->n_ranks && k->n_alive == 0)
            break;
        keep_agent(k); /* also of a job that is at its end already: a look tells who else was there */
        if (all_wait(k)) {
            mc_checkpoint_stop(&k->checkpoint);
            mc_agent_thread_stop(); /* the last verdict belongs into the profile */
        } else {
            mc_checkpoint_step(&k->checkpoint, k->python, k->key, mc_now_ns());
        }
        if (!k->tried && k->mode == MC_MODE_PRELOAD && all_wait(k) && profile_state(k) == MC_PROFILE_NONE)
            write_profile(k, k->n_final < k->local_size);
        rest(k);
    }
    mc_checkpoint_stop(&k->checkpoint);
    mc_agent_thread_stop();
    find_node(k);
    wait_coordinator(k);
    if (!k->tried && profile_state(k) == MC_PROFILE_NONE)
        write_profile(k, k->n_final < k->local_size);
}

/* What the profile has been made of is needed no more; of a job on several nodes the writer itself tells. */
static void end_checkpoints(keeper *k)
{
    mc_checkpoint_end(&k->checkpoint);
    const mc_segment *first = k->n_ranks ? k->ranks[0].segment : NULL;
    for (int i = 1; i < k->n_ranks; i++)
        if (k->ranks[i].world_rank < first->world_rank)
            first = k->ranks[i].segment;
    if (first && profile_state(k) == MC_PROFILE_WRITTEN && (!k->tried || first->n_nodes == 1))
        mc_checkpoint_remove(first);
}

/* ---- beginning and end ---- */

static void remove_segment(void *data, const char *name)
{
    char path[MC_PATH_LEN], what[64];
    snprintf(what, sizeof what, "%.32s.seg", name);
    if (strspn(name, "0123456789") == strlen(name) && path_of(path, data, what) == MC_OK)
        unlink(path);
}

static void remove_files(keeper *k)
{
    char path[MC_PATH_LEN], prefix[MC_NAME_LEN + 16];
    static const char *const whats[] = {"node", "log", "init", "checkpoint"};
    for (size_t i = 0; i < sizeof whats / sizeof *whats; i++)
        if (path_of(path, k, whats[i]) == MC_OK)
            unlink(path);
    if (mc_shm_path(path, sizeof path, "", "") == MC_OK) {
        *strrchr(path, '/') = '\0';
        snprintf(prefix, sizeof prefix, "mpicoloc.%s.", k->key);
        mc_dir_scan(path, prefix, ".seg", remove_segment, k);
    }
}

static void leave_board(void)
{
    char path[MC_PATH_LEN];
    mc_board *board;
    if (mc_board_path(path, sizeof path) != MC_OK || access(path, F_OK) != 0 || mc_board_open(&board) != MC_OK)
        return;
    mc_board_remove_if_empty(board); /* reaps first */
    mc_board_unmap(board);
}

static void close_all(void)
{
    /* close_range is younger than the oldest C library that we serve. */
    if (syscall(SYS_close_range, 3, ~0u, 0) != 0)
        for (int fd = 3; fd < N_FDS_MAX; fd++)
            close(fd);
    int fd = open("/dev/null", O_RDWR);
    for (int i = 0; fd >= 0 && i < 3; i++)
        dup2(fd, i);
    if (fd > 2)
        close(fd);
}

/* The one who started us waits for the first process only; the second is nobody's child. */
static int detach(void)
{
    setsid(); /* before the fork: whoever waits for this process may count on the keeper being out of reach */
    pid_t pid = fork();
    if (pid != 0)
        return pid < 0 ? 4 : 0;
    signal(SIGHUP, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    close_all();
    return -1;
}

int main(int argc, char **argv)
{
    static keeper k;
    if (argc != 3) {
        fprintf(stderr, "usage: mpicoloc-keeper KEY PYTHON (started by mpicoloc's library, not by people)\n");
        return 2;
    }
    int status = detach();
    /* On behalf of the ranks, whose filters it has. */
    if (status == 0 && mc_pmu_is_wanted() && !mc_pmu_is_safe())
        return MC_KEEPER_ONLY;
    if (status >= 0)
        return status;
    k.key = argv[1];
    k.python = argv[2];
    k.t_start = mc_now_ns();
    mc_writer_clean_environment();
    expect_kicks();
    mc_board_outlive();
    mc_checkpoint_init(&k.checkpoint, k.t_start);
    watch(&k);
    end_checkpoints(&k);
    remove_files(&k);
    leave_board();
    return 0;
}
