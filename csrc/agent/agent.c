/* The node agent: one state machine that sleeps until its next duty and does it. */
#define _GNU_SOURCE
#include "agent/agent.h"

#include "common/options.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const uint64_t WATCH_POLL_NS = 5000000;

static uint64_t option_ns(int i_option, double low_s, double high_s)
{
    double s = mc_option_number(i_option);
    return (uint64_t)((s < low_s ? low_s : s > high_s ? high_s : s) * 1e9);
}

static void read_options(mc_agent *agent)
{
    agent->max_ns = option_ns(MC_OPT_SHUTTER_MAX_S, 0.0, 1.0);
    agent->option_period_ns = option_ns(MC_OPT_SHUTTER_PERIOD_S, 0.02, 60.0);
    agent->option_duration_ns = option_ns(MC_OPT_SHUTTER_DURATION_S, 0.0002, 1.0);
    agent->option_duration_ns = mc_min(agent->option_duration_ns, mc_max(agent->max_ns, 200000));
    agent->duty_frac = mc_option_number(MC_OPT_SHUTTER_DUTY_FRAC);
    agent->duty_frac = agent->duty_frac < 1e-4 ? 1e-4 : agent->duty_frac > 1.0 ? 1.0 : agent->duty_frac;
    agent->adapts = mc_option_number(MC_OPT_SHUTTER_ADAPT) != 0.0;
    agent->duration_ns = agent->option_duration_ns;
    agent->stretch = 1.0;
    agent->period_ns = agent->option_period_ns;
}

static void choose_meter(mc_agent *agent)
{
    const char *wanted = mc_option_text(MC_OPT_METER);
    mc_node *node = agent->node;
    node->meter = MC_METER_BURST;
    if (wanted && strcmp(wanted, "none") == 0) {
        node->meter = MC_METER_NONE;
        snprintf(node->meter_reason, sizeof node->meter_reason, "option meter is none");
    } else if (wanted && strcmp(wanted, "burst") == 0) {
        snprintf(node->meter_reason, sizeof node->meter_reason, "option meter is burst");
    } else if (wanted && strcmp(wanted, "loop") == 0) {
        snprintf(node->meter_reason, sizeof node->meter_reason, "option meter is loop");
        mc_loop_open(agent, 1);
    } else if (mc_perf_available(node->meter_reason, sizeof node->meter_reason) == MC_OK) {
        agent->perf = mc_perf_open();
        node->meter = agent->perf ? MC_METER_IPC : MC_METER_BURST;
        if (agent->perf && wanted && strcmp(wanted, "ipc") == 0)
            snprintf(node->meter_reason, sizeof node->meter_reason, "option meter is ipc");
    } else {
        mc_loop_open(agent, 0);
    }
}

static int host_alive(const mc_node *node)
{
    int pid = __atomic_load_n(&node->magic, __ATOMIC_ACQUIRE) == MC_MAGIC ? node->agent_pid : 0;
    return pid && pid != (int)getpid() && kill(pid, 0) == 0;
}

static int has_agent(const char *path)
{
    void *map;
    if (mc_shm_map(&map, path, sizeof(mc_node), 0) != MC_OK)
        return 0;
    int result = host_alive(map);
    mc_shm_unmap(map, sizeof(mc_node));
    return result;
}

static int open_node(mc_agent *agent)
{
    char path[MC_PATH_LEN];
    void *map;
    int status = mc_shm_path(path, sizeof path, agent->key, "node");
    if (status == MC_OK)
        status = has_agent(path) ? MC_E_GONE : mc_shm_map(&map, path, sizeof(mc_node), 1);
    if (status != MC_OK)
        return status;
    agent->node = map;
    status = mc_shm_reserve(path, 0, sizeof(mc_node));
    if (status != MC_OK) {
        unlink(path);
        return status;
    }
    agent->node->abi_version = MC_ABI_VERSION;
    agent->node->size_bytes = sizeof(mc_node);
    memcpy(agent->node->key, agent->key, sizeof agent->key);
    agent->node->agent_pid = (int32_t)getpid();
    agent->node->t_open = agent->t_open;
    agent->node->t_last = agent->t_open;
    /* At once: who finds no agent here becomes it, and makes the file anew. */
    __atomic_store_n(&agent->node->magic, MC_MAGIC, __ATOMIC_RELEASE);
    choose_meter(agent);
    return MC_OK;
}

/* Jobs of another version would not stand still, nor be seen: they have a board of their own. One that is left behind,
   with nobody on it, is in nobody's way. */
static int join_board(mc_agent *agent)
{
    if (mc_board_n_foreign() > 0)
        return MC_E_VERSION;
    int status = mc_board_open(&agent->board);
    if (status != MC_OK)
        return status;
    status = mc_board_claim(agent->board, agent->owner, agent->job_id, &agent->slot);
    if (status != MC_OK) {
        mc_board_unmap(agent->board);
        agent->board = NULL;
    }
    return status;
}

/* The job goes on without shutters; its profile says why. */
static void do_without_board(mc_agent *agent, int status)
{
    const char *why = status == MC_E_ABI       ? "the board in the shared-memory folder is damaged"
                      : status == MC_E_VERSION ? "the board of another version of mpicoloc has jobs on it"
                      : status == MC_E_FULL    ? "the board has no free slot"
                                               : "the board cannot be made or opened";
    mc_loop_close(agent);
    agent->node->meter = MC_METER_NONE;
    snprintf(agent->node->meter_reason, sizeof agent->node->meter_reason, "%s (status %d)", why, status);
}

int mc_agent_open(mc_agent **out, const char *key, const char *job_id)
{
    mc_proc_stat self;
    mc_agent *agent = NULL;
    if (strlen(key) >= sizeof agent->key)
        return MC_E_ARG;
    if (!(agent = calloc(1, sizeof *agent)))
        return MC_E_FULL;
    snprintf(agent->key, sizeof agent->key, "%s", key);
    snprintf(agent->job_id, sizeof agent->job_id, "%s", job_id ? job_id : key);
    read_options(agent);
    agent->t_open = mc_now_ns();
    agent->ranks = calloc(MC_N_NODE_RANKS, sizeof *agent->ranks);
    int status = agent->ranks && mc_proc_read_stat(&self, (int)getpid(), 0) == MC_OK ? MC_OK : MC_E_FULL;
    if (status == MC_OK)
        status = open_node(agent);
    if (status != MC_OK) {
        mc_agent_close(agent);
        return status;
    }
    agent->owner = mc_board_owner((int)getpid(), self.start_ticks);
    status = join_board(agent);
    if (status != MC_OK)
        do_without_board(agent, status);
    mc_wake_promptly();
    agent->tracer = mc_tracer_start(key);
    mc_schedule(agent, agent->t_open);
    agent->t_duty = agent->t_open;
    *out = agent;
    return MC_OK;
}

int mc_agent_watch(mc_agent **out, const char *key, uint64_t wait_ns)
{
    char path[MC_PATH_LEN];
    void *map = NULL;
    uint64_t end = mc_now_ns() + wait_ns;
    mc_agent *agent = calloc(1, sizeof *agent);
    if (!agent || !(agent->ranks = calloc(MC_N_NODE_RANKS, sizeof *agent->ranks)) || strlen(key) >= sizeof agent->key ||
        mc_shm_path(path, sizeof path, key, "node") != MC_OK) {
        mc_agent_close(agent);
        return MC_E_ARG;
    }
    snprintf(agent->key, sizeof agent->key, "%s", key);
    agent->watches = 1;
    while (!agent->node) {
        if (mc_shm_map(&map, path, sizeof(mc_node), 0) == MC_OK && !host_alive(map))
            mc_shm_unmap(map, sizeof(mc_node));
        else if (map)
            agent->node = map;
        map = NULL;
        if (!agent->node && mc_now_ns() >= end) {
            mc_agent_close(agent);
            return MC_E_GONE;
        }
        if (!agent->node)
            mc_sleep_until(mc_now_ns() + WATCH_POLL_NS, &agent->wake);
    }
    agent->node->coordinator_pid = (int32_t)getpid();
    *out = agent;
    return MC_OK;
}

static int watch_step(mc_agent *agent, uint64_t max_wait_ns)
{
    mc_nap_until(mc_now_ns() + max_wait_ns, &agent->wake);
    mc_ranks_find(agent);
    mc_ranks_check(agent, mc_now_ns());
    return MC_OK;
}

static void write_slot(mc_agent *agent, uint64_t now)
{
    uint64_t mask[16] = {0};
    for (int i = 0; i < agent->n_ranks; i++)
        for (int j = 0; j < 16 && agent->ranks[i].alive; j++)
            mask[j] |= agent->ranks[i].segment->cpu_mask[j];
    memcpy(agent->slot->cpu_mask, mask, sizeof mask);
    __atomic_store_n(&agent->slot->books, (uint64_t)agent->is_common, __ATOMIC_RELEASE);
    __atomic_store_n(&agent->slot->n_ranks, (uint32_t)agent->n_alive, __ATOMIC_RELEASE);
    __atomic_store_n(&agent->slot->heartbeat, now, __ATOMIC_RELEASE);
}

static void note_corunner(mc_agent *agent, const mc_neighbour *other, uint64_t now)
{
    mc_node *node = agent->node;
    uint64_t i = 0, n = mc_min(node->n_corunners, MC_N_CORUNNERS);
    while (i < n && node->corunners[i].owner != other->owner)
        i++;
    if (i == MC_N_CORUNNERS)
        return;
    mc_corunner *row = &node->corunners[i];
    row->t_last = now;
    if (i < n)
        return;
    row->owner = other->owner;
    row->t_first = now;
    mc_slot_name(&agent->board->slots[other->i_slot], row->job_id);
    __atomic_store_n(&node->n_corunners, i + 1, __ATOMIC_RELEASE);
}

/* A job whose ranks wait for each other is slowed on all of its nodes by company on one. */
static int shared_elsewhere(const mc_agent *agent)
{
    return agent->is_common && __atomic_load_n(&agent->node->common.is_shared, __ATOMIC_ACQUIRE);
}

static void look_around(mc_agent *agent, uint64_t now)
{
    int n_sharing = 0;
    int n_before = agent->n_live;
    agent->n_live = mc_board_live(agent->board, now, agent->period_ns, agent->live);
    if (agent->n_live != n_before)
        agent->stretch = 1.0;
    agent->n_others = 0;
    for (int i = 0; i < agent->n_live; i++) {
        if (agent->live[i].owner == agent->owner)
            continue;
        agent->n_others++;
        n_sharing += agent->live[i].n_ranks > 0;
        if (agent->live[i].n_ranks)
            note_corunner(agent, &agent->live[i], now);
    }
    n_sharing += shared_elsewhere(agent);
    if (agent->was_shared && n_sharing)
        agent->node->shared_ns += now - agent->t_refreshed;
    agent->was_shared = n_sharing > 0;
}

static void tell_alone(mc_agent *agent)
{
    uint64_t alone = agent->board && agent->n_others == 0 && !shared_elsewhere(agent);
    for (int i = 0; i < agent->n_ranks; i++)
        __atomic_store_n(&agent->ranks[i].segment->sampling.alone, alone, __ATOMIC_RELAXED);
}

static void keep_board(mc_agent *agent)
{
    if (!agent->board || mc_board_current(agent->board))
        return;
    mc_board_unmap(agent->board);
    agent->board = NULL;
    int status = join_board(agent);
    if (status != MC_OK)
        do_without_board(agent, status);
}

static void refresh(mc_agent *agent, uint64_t now)
{
    mc_ranks_find(agent);
    mc_ranks_check(agent, now);
    keep_board(agent);
    if (agent->board) {
        write_slot(agent, now);
        mc_turn_verdict(agent, now);
        look_around(agent, now);
        mc_loop_step(agent, now);
        mc_agent_adapt(agent, now);
        mc_common_step(agent, now);
    }
    tell_alone(agent);
    agent->t_refreshed = now;
    agent->node->t_last = now;
    agent->node->shutter_duration_ns = agent->duration_ns;
    agent->node->shutter_period_ns = agent->period_ns;
}

static void prepare(mc_agent *agent, uint64_t now)
{
    refresh(agent, now);
    if (agent->board)
        mc_schedule_turn(agent, now);
    else
        mc_schedule(agent, now);
}

int mc_agent_step(mc_agent *agent, uint64_t max_wait_ns)
{
    uint64_t now = mc_now_ns();
    if (agent->watches)
        return watch_step(agent, max_wait_ns);
    if (now < agent->t_duty) {
        mc_nap_until(mc_min(agent->t_duty, now + max_wait_ns), &agent->wake);
        now = mc_now_ns();
    }
    if (now < agent->t_duty || __atomic_load_n(&agent->wake, __ATOMIC_ACQUIRE))
        return MC_OK;
    if (agent->duty == MC_DUTY_PREPARE) {
        prepare(agent, now);
        return MC_OK;
    }
    if (agent->duty == MC_DUTY_PAUSE) {
        mc_pause_prepare(agent, (uint64_t)agent->i_target);
        mc_pause_do(agent);
    } else {
        mc_turn_measure(agent);
    }
    mc_schedule(agent, mc_now_ns());
    return MC_OK;
}

void mc_agent_ranks(const mc_agent *agent, int *n_seen, int *n_alive, int *n_finalizing)
{
    *n_seen = agent->n_ranks;
    *n_alive = agent->n_alive;
    *n_finalizing = 0;
    for (int i = 0; i < agent->n_ranks; i++)
        *n_finalizing += agent->ranks[i].alive &&
                         __atomic_load_n(&agent->ranks[i].segment->state, __ATOMIC_ACQUIRE) == MC_RANK_FINALIZING;
}

mc_node *mc_agent_node(mc_agent *agent)
{
    return agent->node;
}

void mc_agent_close(mc_agent *agent)
{
    if (!agent)
        return;
    mc_tracer_stop(agent->tracer);
    if (agent->board && mc_board_current(agent->board)) {
        mc_turn_verdict(agent, mc_now_ns());
        /* One that is still open ended with the job, or waits for the word of the other nodes. */
        mc_turn_close(agent, agent->turn.i_common ? MC_VERDICT_ELSEWHERE : MC_VERDICT_UNKNOWN);
        mc_board_release(agent->slot, agent->owner);
        mc_board_remove_if_empty(agent->board);
    }
    mc_board_unmap(agent->board);
    mc_perf_close(agent->perf);
    mc_loop_close(agent);
    mc_ranks_close(agent);
    mc_shm_unmap(agent->node, sizeof(mc_node));
    free(agent);
}
