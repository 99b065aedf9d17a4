/* mpicoloc-keeper KEY PYTHON: outlives the ranks of one job on one node. It runs the job's node agent. When all ranks
   wait in MPI_Finalize, it starts the program that writes the profile. If the ranks vanish, that program writes a
   partial profile. Then the keeper removes the job's shared memory. */
#define _GNU_SOURCE
#include "agent/thread.h"
#include "common/board/board.h"
#include "common/counters/pmu.h"
#include "common/proc.h"
#include "common/rank_files.h"
#include "keeper/keeper.h"
#include "trace/trace.h"

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

/* Older C libraries and kernel headers lack these numbers, even on newer kernels. All processors but these three use
   the same numbers. */
#if !defined __alpha__ && !defined __mips__ && !defined __ia64__
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#endif

enum { POLL_MS = 500, BUSY_POLL_MS = 20, AGENT_POLL_MS = 2, N_FDS_MAX = 65536 };

/* Longest waits: for the first segment, for the other segments, and for a coordinator to write the profile. All
   segments are made before the keeper starts, so if the first wait finds none, the job is over. */
static const uint64_t FIRST_RANK_NS = 1000000000u, OTHER_RANKS_NS = 2000000000u, COORDINATOR_NS = 5000000000u;

/* ---- ranks and node file ---- */

static void add_rank(void *data, int world_rank, const char *path)
{
    mc_keeper *k = data;
    if (k->n_ranks == MC_N_NODE_RANKS)
        return;
    for (int i = 0; i < k->n_ranks; i++)
        if (k->ranks[i].world_rank == world_rank)
            return;
    mc_segment *segment = mc_segment_map(path);
    if (!segment)
        return;
    mc_kept_rank *rank = &k->ranks[k->n_ranks++];
    /* If the pid has been reused meanwhile, the start times differ, and the rank does not count as alive. */
    *rank = (mc_kept_rank){segment, world_rank, (int)syscall(SYS_pidfd_open, segment->pid, 0), 1};
    rank->alive = mc_proc_alive(segment->pid, segment->pid_start_ticks);
    k->local_size = segment->local_size;
    k->mode = segment->mode;
}

static void find_ranks(mc_keeper *k)
{
    if (!k->local_size || k->n_ranks < k->local_size)
        mc_rank_files_scan(k->key, add_rank, k);
}

static void find_node(mc_keeper *k)
{
    char path[MC_PATH_LEN];
    if (!k->node && mc_shm_path(path, sizeof path, k->key, "node") == MC_OK)
        k->node = mc_node_map(path);
    if (k->node)
        k->node->keeper_pid = (int32_t)getpid();
}

static int still_alive(const mc_kept_rank *rank)
{
    struct pollfd event = {rank->pidfd, POLLIN, 0};
    if (rank->pidfd >= 0)
        return poll(&event, 1, 0) == 0;
    return mc_proc_alive(rank->segment->pid, rank->segment->pid_start_ticks);
}

static void look(mc_keeper *k)
{
    find_ranks(k);
    find_node(k);
    k->n_alive = k->n_finalizing = k->n_final = 0;
    for (int i = 0; i < k->n_ranks; i++) {
        mc_kept_rank *rank = &k->ranks[i];
        int final = __atomic_load_n(&rank->segment->state, __ATOMIC_ACQUIRE) == MC_RANK_FINALIZING;
        rank->alive = rank->alive && still_alive(rank);
        k->n_alive += rank->alive;
        k->n_finalizing += rank->alive && final;
        k->n_final += final;
    }
}

/* All segments are made before the keeper starts, so a segment that is still missing after OTHER_RANKS_NS could not be
   made. */
static int may_come(const mc_keeper *k, int is_missing)
{
    return is_missing && mc_now_ns() < k->t_start + OTHER_RANKS_NS;
}

static void on_kick(__attribute__((unused)) int signal)
{
}

/* The first rank sends SIGURG when all ranks are in MPI_Finalize. A process that does not expect this signal ignores
   it. The keeper blocks the signal except in rest(), so that no signal is lost. */
static void expect_kicks(void)
{
    struct sigaction action = {.sa_handler = on_kick};
    sigset_t kick;
    sigemptyset(&kick);
    sigaddset(&kick, SIGURG);
    sigprocmask(SIG_BLOCK, &kick, NULL);
    sigaction(SIGURG, &action, NULL);
}

static void rest(const mc_keeper *k)
{
    struct pollfd events[MC_N_NODE_RANKS];
    nfds_t n = 0;
    /* While the agent's file is missing, a rank that ends does not know which process to signal. So look again soon. */
    int is_soon = may_come(k, k->n_ranks < k->local_size || !k->node) || (k->n_finalizing && !k->tried);
    /* The agent makes the file within a millisecond, and a rank that ends early waits for it. */
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

/* State of the profile. A coordinator stores this state in the node file and in the segments. */
static uint64_t profile_state(const mc_keeper *k)
{
    uint64_t state = k->outcome;
    if (state == MC_PROFILE_NONE && k->node)
        state = __atomic_load_n(&k->node->profile, __ATOMIC_ACQUIRE);
    if (state == MC_PROFILE_NONE && k->n_ranks && !k->is_owed)
        state = __atomic_load_n(&k->ranks[0].segment->profile, __ATOMIC_ACQUIRE);
    return state;
}

/* The agent runs here and not in a rank, because this process has a session of its own, and Linux shares processors
   among sessions first (autogroup). On a full node the agent wakes within 0.05 ms, whereas a thread of a rank would
   need 10 ms. */
static void keep_agent(mc_keeper *k)
{
    /* If a node file exists already, the coordinator has become the agent without waiting for the keeper. A second
       agent would replace the file of the first. */
    if (k->has_agent || k->n_ranks == 0 || k->n_alive == 0 || k->node)
        return;
    k->has_agent = 1;
    mc_agent_thread_start(k->key, k->ranks[0].segment->job_id);
}

/* The writer was killed twice, probably for want of memory. A checkpoint needs less memory than a profile. */
static void save_checkpoint(mc_keeper *k, int signal)
{
    char out[MC_PATH_LEN];
    int saved = mc_writer_run(k->python, "mpicoloc.profile.checkpoints", k->key, "--last") == 0;
    snprintf(out, sizeof out, "%.*s", MC_PATH_LEN - 1, k->ranks[0].segment->out_path);
    int n =
        snprintf(k->complaint, sizeof k->complaint, "no profile was written: its writer was killed twice (signal %d%s)",
                 signal, signal == SIGKILL ? ", for want of memory?" : "");
    snprintf(k->complaint + n, sizeof k->complaint - (size_t)n,
             saved ? "; `mpicoloc recover %s` makes one from a checkpoint"
                   : "; another attempt at %s follows when the ranks have ended",
             out);
    k->is_owed = !saved;
}

static void write_profile(mc_keeper *k, int partial)
{
    const char *module = "mpicoloc.profile.assemble", *option = partial ? "--partial" : NULL;
    int code = 0;
    /* Collect the trace of a job that was too short for an agent to run. If there is a node file, an agent ran in a
       keeper that was killed: leave that agent's trace as it is. */
    find_node(k);
    if (!k->has_agent && !k->tried && !k->node && k->mode == MC_MODE_PRELOAD)
        mc_tracer_stop(mc_tracer_start(k->key));
    mc_files_make_node(k);
    find_node(k);
    k->tried = 1;
    k->is_owed = 0;
    for (int i = 0; i == 0 || (i == 1 && code < 0); i++)
        code = mc_writer_run(k->python, module, k->key, option);
    if (code < 0)
        save_checkpoint(k, -code);
    else if (code == MC_WRITER_LATE)
        snprintf(k->complaint, sizeof k->complaint, "no profile was written: it took longer than %d s", MC_WRITER_S);
    else if (code)
        mc_files_read_log(k, k->complaint, sizeof k->complaint);
    if (!k->is_owed)
        k->outcome = code ? MC_PROFILE_FAILED : MC_PROFILE_WRITTEN;
    if (k->node)
        __atomic_store_n(&k->node->profile, k->outcome, __ATOMIC_RELEASE);
}

/* Store the outcome in the segments, because the first rank waits for it. The node file may have been deleted, or that
   rank may be unable to open it, whereas the rank's own segment stays mapped. */
static void report_outcome(mc_keeper *k, uint64_t state)
{
    for (int i = 0; i < k->n_ranks; i++)
        if (__atomic_load_n(&k->ranks[i].segment->profile, __ATOMIC_ACQUIRE) == MC_PROFILE_NONE)
            mc_segment_set_outcome(k->ranks[i].segment, state, k->complaint);
}

/* 1 if every living rank waits in MPI_Finalize, and no further ranks can appear. */
static int all_wait(const mc_keeper *k)
{
    return k->n_alive && k->n_finalizing == k->n_alive && !may_come(k, k->n_ranks < k->local_size);
}

static int coordinator_alive(const mc_keeper *k)
{
    mc_proc_stat stat;
    int pid = k->node ? k->node->coordinator_pid : 0;
    if (!pid && k->node && k->node->agent_pid != (int)getpid())
        pid = k->node->agent_pid; /* the coordinator has become the agent without waiting for the keeper */
    return pid && mc_proc_read_stat(&stat, pid) == MC_OK && stat.state != 'Z';
}

static void wait_coordinator(mc_keeper *k)
{
    uint64_t end = mc_now_ns() + COORDINATOR_NS;
    while (k->mode == MC_MODE_WRAP && profile_state(k) == MC_PROFILE_NONE && mc_now_ns() < end && coordinator_alive(k))
        poll(NULL, 0, BUSY_POLL_MS);
}

/* Stop the agent and restore deleted files. All ranks wait or have ended, so no data change any more. */
static void settle(mc_keeper *k)
{
    mc_checkpoint_stop(&k->checkpoint);
    mc_agent_thread_stop(); /* stop it before the profile is written, because the profile needs the last verdict */
    find_node(k);
    if (!k->is_settled && profile_state(k) == MC_PROFILE_NONE)
        mc_files_restore(k);
    k->is_settled = 1;
}

/* Remove this node's checkpoint if the profile is complete. On several nodes, the end of this node's writer does not
   mean that it is; the writer that completes the profile removes all checkpoints. */
static void end_checkpoints(mc_keeper *k)
{
    mc_checkpoint_end(&k->checkpoint);
    const mc_segment *first = k->n_ranks ? k->ranks[0].segment : NULL;
    for (int i = 1; i < k->n_ranks; i++)
        if (k->ranks[i].world_rank < first->world_rank)
            first = k->ranks[i].segment;
    if (first && profile_state(k) == MC_PROFILE_WRITTEN && (!k->tried || first->n_nodes == 1))
        mc_checkpoint_remove(first);
}

/* In a container all processes may end together with the ranks, which would leave files behind. So remove all files
   while the ranks still wait. */
static void write_while_they_wait(mc_keeper *k)
{
    write_profile(k, k->n_final < k->local_size);
    if (!k->is_owed) {
        end_checkpoints(k);
        mc_files_remove(k, 0);
        mc_board_remove_if_empty();
        k->is_put_away = 1;
    }
    report_outcome(k, k->is_owed ? MC_PROFILE_FAILED : profile_state(k));
}

static void watch(mc_keeper *k)
{
    for (;;) {
        look(k);
        if (k->n_ranks == 0 && mc_now_ns() > k->t_start + FIRST_RANK_NS)
            return;
        if (k->n_ranks && k->n_alive == 0)
            break;
        keep_agent(k); /* even if the job is about to end: one step of the agent records the co-runners */
        if (all_wait(k))
            settle(k);
        else
            mc_checkpoint_step(&k->checkpoint, k->python, k->key, mc_now_ns());
        if (!k->tried && k->mode == MC_MODE_PRELOAD && all_wait(k) && profile_state(k) == MC_PROFILE_NONE)
            write_while_they_wait(k);
        else if (!k->tried && profile_state(k) != MC_PROFILE_NONE)
            report_outcome(k, profile_state(k));
        rest(k);
    }
    settle(k);
    wait_coordinator(k);
    if ((!k->tried || k->is_owed) && profile_state(k) == MC_PROFILE_NONE)
        write_profile(k, k->n_final < k->local_size);
}

/* ---- beginning and end ---- */

static void close_all(void)
{
    /* The oldest supported C library lacks close_range. */
    if (syscall(SYS_close_range, 3, ~0u, 0) != 0)
        for (int fd = 3; fd < N_FDS_MAX; fd++)
            close(fd);
    int fd = open("/dev/null", O_RDWR);
    for (int i = 0; fd >= 0 && i < 3; i++)
        dup2(fd, i);
    if (fd > 2)
        close(fd);
}

/* Become a daemon. The process that started this one waits only for this one, which prints the process ID of its child,
   the keeper, and ends. */
static int detach(void)
{
    setsid(); /* before the fork, so that the keeper has left the job's session when this process ends */
    pid_t pid = fork();
    if (pid > 0)
        dprintf(STDOUT_FILENO, "%d\n", (int)pid);
    if (pid != 0)
        return pid < 0 ? 4 : 0;
    signal(SIGHUP, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* file size limits are meant for the ranks, not for this process */
    close_all();
    return -1;
}

int main(int argc, char **argv)
{
    static mc_keeper k;
    if (argc != 3) {
        fprintf(stderr, "usage: mpicoloc-keeper KEY PYTHON (started by mpicoloc's library, not by people)\n");
        return 2;
    }
    int status = detach();
    /* Check the counters on behalf of the ranks, because this process has the same system-call filters. */
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
    if (!k.is_put_away)
        end_checkpoints(&k);
    mc_files_remove(&k, 1);
    mc_board_remove_if_empty();
    return 0;
}
