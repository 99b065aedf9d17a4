#define _GNU_SOURCE
#include "agent/agent.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const uint64_t CHECK_EVERY_NS = 1000000000u;

static const mc_rank *known_rank(const mc_agent *agent, int world_rank)
{
    for (int i = 0; i < agent->n_ranks; i++)
        if (agent->ranks[i].world_rank == world_rank)
            return &agent->ranks[i];
    return NULL;
}

static mc_segment *map_segment(const char *path)
{
    void *map;
    if (mc_shm_map(&map, path, sizeof(mc_segment), 0) != MC_OK)
        return NULL;
    mc_segment *segment = map;
    if (__atomic_load_n(&segment->magic, __ATOMIC_ACQUIRE) == MC_MAGIC && segment->abi_version == MC_ABI_VERSION)
        return segment;
    mc_shm_unmap(map, sizeof(mc_segment)); /* not complete yet, or none of ours */
    return NULL;
}

/* The agent may run wherever its job may: bound to the first rank's core, it would always be in that rank's way. */
static void widen_affinity(const mc_segment *segment)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return;
    for (int i = 0; i < CPU_SETSIZE && i < 1024; i++)
        if (segment->cpu_mask[i / 64] >> (i % 64) & 1)
            CPU_SET(i, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static void add_rank(void *data, const char *name)
{
    mc_agent *agent = data;
    char path[MC_PATH_LEN], what[32], *end;
    long world_rank = strtol(name, &end, 10);
    if (*end || world_rank < 0 || agent->n_ranks == MC_N_NODE_RANKS || known_rank(agent, (int)world_rank))
        return;
    snprintf(what, sizeof what, "%ld.seg", world_rank);
    if (mc_shm_path(path, sizeof path, agent->key, what) != MC_OK)
        return;
    mc_segment *segment = map_segment(path);
    if (!segment)
        return;
    mc_rank *rank = &agent->ranks[agent->n_ranks++];
    *rank = (mc_rank){.segment = segment,
                      .world_rank = (int)world_rank,
                      .pid = segment->pid,
                      .start_ticks = segment->pid_start_ticks,
                      .alive = 1};
    if (clock_getcpuclockid(rank->pid, &rank->cpu_clock) != 0)
        rank->alive = 0;
    agent->local_size = segment->local_size;
    agent->is_common = segment->n_nodes > 1; /* with nobody to agree, better no shutters than half ones */
    if (!agent->watches)
        widen_affinity(segment);
    if (agent->t_refreshed) /* the board is known, so the rank can be told at once */
        __atomic_store_n(&segment->sampling.alone, !agent->was_shared && agent->board, __ATOMIC_RELAXED);
}

void mc_ranks_find(mc_agent *agent)
{
    char dir[MC_PATH_LEN], prefix[MC_PREFIX_LEN];
    if (mc_shm_path(dir, sizeof dir, "", "") != MC_OK || (agent->local_size && agent->n_ranks >= agent->local_size))
        return;
    *strrchr(dir, '/') = '\0';
    snprintf(prefix, sizeof prefix, "mpicoloc.%s.", agent->key);
    mc_dir_scan(dir, prefix, ".seg", add_rank, agent);
}

/* Only now and then in /proc, which tells zombies and reused pids: that costs twenty times as much. */
void mc_ranks_check(mc_agent *agent, uint64_t now)
{
    int thoroughly = now >= agent->t_checked + CHECK_EVERY_NS;
    agent->n_alive = 0;
    for (int i = 0; i < agent->n_ranks; i++) {
        mc_rank *rank = &agent->ranks[i];
        rank->alive =
            rank->alive && kill(rank->pid, 0) == 0 && (!thoroughly || mc_proc_alive(rank->pid, rank->start_ticks));
        agent->n_alive += rank->alive;
    }
    if (thoroughly)
        agent->t_checked = now;
}

void mc_ranks_close(mc_agent *agent)
{
    for (int i = 0; i < agent->n_ranks; i++)
        mc_shm_unmap(agent->ranks[i].segment, sizeof(mc_segment));
    agent->n_ranks = agent->n_alive = 0;
    free(agent->ranks);
    agent->ranks = NULL;
}
