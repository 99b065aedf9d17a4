/* Open and close an agent: its node file and its slot on the board. */
#define _GNU_SOURCE
#include "agent/agent.h"
#include "common/proc.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const uint64_t WATCH_POLL_NS = 5000000;

/* 1: the agent of this node file is another process that is alive. `node` is NULL if there is no such file. */
static int has_live_agent(const mc_node *node)
{
    int pid = node ? node->agent_pid : 0;
    return pid && pid != (int)getpid() && kill(pid, 0) == 0;
}

static int is_taken(const char *path)
{
    mc_node *node = mc_node_map(path);
    int result = has_live_agent(node);
    mc_shm_unmap(node, sizeof *node);
    return result;
}

static int open_node(mc_agent *agent)
{
    char path[MC_PATH_LEN];
    void *map;
    int status = mc_shm_path(path, sizeof path, agent->ranks.key, "node");
    if (status == MC_OK)
        status = is_taken(path) ? MC_E_GONE : mc_shm_map(&map, path, sizeof(mc_node), 1);
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
    memcpy(agent->node->key, agent->ranks.key, sizeof agent->node->key);
    agent->node->agent_pid = (int32_t)getpid();
    agent->node->t_open = agent->t_open;
    agent->node->t_last = agent->t_open;
    /* Publish the file before choosing the meter, which takes time: another process that finds no agent would become
       the agent and replace the file. */
    __atomic_store_n(&agent->node->magic, MC_MAGIC, __ATOMIC_RELEASE);
    mc_meter_choose(&agent->meter, agent->node, &agent->ranks, agent->t_open);
    return MC_OK;
}

void mc_agent_lose_board(mc_agent *agent, int status)
{
    mc_node *node = agent->node;
    const char *why = status == MC_E_ABI       ? "the board in the shared-memory folder is damaged"
                      : status == MC_E_VERSION ? "the board of another version of mpicoloc has jobs on it"
                      : status == MC_E_FULL    ? "the board has no free slot"
                                               : "the board cannot be made or opened";
    mc_meter_lose(&agent->meter);
    snprintf(node->meter_reason, sizeof node->meter_reason, "%s (status %d)", why, status);
}

int mc_agent_open(mc_agent **out, const char *key, const char *job_id)
{
    mc_agent *agent = calloc(1, sizeof *agent);
    if (!agent)
        return MC_E_FULL;
    snprintf(agent->job_id, sizeof agent->job_id, "%s", job_id ? job_id : key);
    agent->t_open = mc_now_ns();
    mc_lengths_open(&agent->lengths, agent->t_open);
    const mc_shutter_options *options = &agent->lengths.options;
    agent->pause.duty = (mc_duty){.t_open = agent->t_open,
                                  .frac = options->duty_frac,
                                  .allowance_ns = 2 * options->duration_ns,
                                  .longest_ns = options->max_ns};
    int status = mc_job_ranks_open(&agent->ranks, key);
    if (status == MC_OK)
        status = open_node(agent);
    if (status != MC_OK) {
        mc_agent_close(agent);
        return status;
    }
    status = mc_view_join(&agent->view, agent->job_id);
    if (status != MC_OK)
        mc_agent_lose_board(agent, status);
    agent->bubbling = mc_bubbling_open(agent->node->bubble_reason, &agent->node->probe_curve);
    mc_wake_promptly();
    agent->tracer = mc_tracer_start(key);
    mc_agent_plan(agent, agent->t_open);
    agent->t_duty = agent->t_open;
    *out = agent;
    return MC_OK;
}

int mc_agent_watch(mc_agent **out, const char *key, uint64_t wait_ns)
{
    char path[MC_PATH_LEN];
    uint64_t end = mc_now_ns() + wait_ns;
    mc_agent *agent = calloc(1, sizeof *agent);
    if (!agent || mc_job_ranks_open(&agent->ranks, key) != MC_OK ||
        mc_shm_path(path, sizeof path, key, "node") != MC_OK) {
        mc_agent_close(agent);
        return MC_E_ARG;
    }
    agent->watches = 1;
    mc_node *node = mc_node_map(path);
    while (!has_live_agent(node)) {
        mc_shm_unmap(node, sizeof *node);
        if (mc_now_ns() >= end) {
            mc_agent_close(agent);
            return MC_E_GONE;
        }
        mc_sleep_until(mc_now_ns() + WATCH_POLL_NS, &agent->wake);
        node = mc_node_map(path);
    }
    agent->node = node;
    node->coordinator_pid = (int32_t)getpid();
    *out = agent;
    return MC_OK;
}

void mc_agent_ranks(const mc_agent *agent, int *n_seen, int *n_alive, int *n_finalizing)
{
    *n_seen = agent->ranks.n;
    *n_alive = agent->ranks.n_alive;
    *n_finalizing = mc_job_ranks_n_finalizing(&agent->ranks);
}

void mc_agent_close(mc_agent *agent)
{
    if (!agent)
        return;
    mc_tracer_stop(agent->tracer);
    if (agent->view.board && mc_board_current(agent->view.board)) {
        mc_agent_judge(agent, mc_now_ns());
        /* A shutter that is still open was cut short by the end of the job, or waits for the verdict of the other
           nodes. */
        uint64_t verdict = agent->own.i_common ? MC_VERDICT_ELSEWHERE : MC_VERDICT_UNKNOWN;
        mc_own_shutter_close(&agent->own, &agent->ranks, agent->node, verdict);
    }
    mc_bubbling_close(agent->bubbling);
    mc_view_leave(&agent->view);
    mc_meter_close(&agent->meter);
    mc_job_ranks_close(&agent->ranks);
    mc_shm_unmap(agent->node, sizeof(mc_node));
    free(agent);
}
