#define _GNU_SOURCE
#include "agent/shutter/ranks.h"

#include "common/proc.h"
#include "common/rank_files.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t CHECK_EVERY_NS = 1000000000u;

int mc_job_ranks_open(mc_job_ranks *ranks, const char *key)
{
    if (strlen(key) >= sizeof ranks->key)
        return MC_E_ARG;
    snprintf(ranks->key, sizeof ranks->key, "%s", key);
    ranks->rows = calloc(MC_N_NODE_RANKS, sizeof *ranks->rows);
    return ranks->rows ? MC_OK : MC_E_FULL;
}

static int is_known(const mc_job_ranks *ranks, int world_rank)
{
    for (int i = 0; i < ranks->n; i++)
        if (ranks->rows[i].world_rank == world_rank)
            return 1;
    return 0;
}

static void add_rank(void *data, int world_rank, const char *path)
{
    mc_job_ranks *ranks = data;
    if (ranks->n == MC_N_NODE_RANKS || is_known(ranks, world_rank))
        return;
    mc_segment *segment = mc_segment_map(path);
    if (!segment)
        return;
    mc_rank *rank = &ranks->rows[ranks->n++];
    *rank = (mc_rank){.segment = segment,
                      .world_rank = world_rank,
                      .pid = segment->pid,
                      .start_ticks = segment->pid_start_ticks,
                      .alive = 1,
                      .paused_ns = __atomic_load_n(&segment->counters.paused_ns, __ATOMIC_RELAXED)};
    if (clock_getcpuclockid(rank->pid, &rank->cpu_clock) != 0)
        rank->alive = 0;
    ranks->local_size = segment->local_size;
    ranks->is_multi_node = segment->n_nodes > 1;
}

int mc_job_ranks_find(mc_job_ranks *ranks)
{
    int n_before = ranks->n;
    if (!ranks->local_size || ranks->n < ranks->local_size)
        mc_rank_files_scan(ranks->key, add_rank, ranks);
    return n_before;
}

/* /proc shows zombies and reused pids, but reading it takes twenty times as long as kill(), so it is read once a
   second. */
void mc_job_ranks_check(mc_job_ranks *ranks, uint64_t now)
{
    int reads_proc = now >= ranks->t_checked + CHECK_EVERY_NS;
    ranks->n_alive = 0;
    for (int i = 0; i < ranks->n; i++) {
        mc_rank *rank = &ranks->rows[i];
        rank->alive =
            rank->alive && kill(rank->pid, 0) == 0 && (!reads_proc || mc_proc_alive(rank->pid, rank->start_ticks));
        ranks->n_alive += rank->alive;
    }
    if (reads_proc)
        ranks->t_checked = now;
}

int mc_job_ranks_n_finalizing(const mc_job_ranks *ranks)
{
    int n = 0;
    for (int i = 0; i < ranks->n; i++)
        n += ranks->rows[i].alive &&
             __atomic_load_n(&ranks->rows[i].segment->state, __ATOMIC_ACQUIRE) == MC_RANK_FINALIZING;
    return n;
}

cpu_set_t mc_job_ranks_cpus(const mc_job_ranks *ranks)
{
    cpu_set_t cpus, of_rank;
    CPU_ZERO(&cpus);
    for (int i = 0; i < ranks->n; i++) {
        memcpy(&of_rank, ranks->rows[i].segment->cpu_mask, sizeof of_rank);
        if (ranks->rows[i].alive)
            CPU_OR(&cpus, &cpus, &of_rank);
    }
    return cpus;
}

uint64_t mc_job_ranks_cpu_ns(const mc_job_ranks *ranks)
{
    uint64_t ns = 0;
    for (int i = 0; i < ranks->n; i++)
        ns += ranks->rows[i].alive ? mc_clock_ns(ranks->rows[i].cpu_clock) : 0;
    return ns;
}

void mc_job_ranks_close(mc_job_ranks *ranks)
{
    for (int i = 0; i < ranks->n; i++)
        mc_shm_unmap(ranks->rows[i].segment, sizeof(mc_segment));
    ranks->n = ranks->n_alive = 0;
    free(ranks->rows);
    ranks->rows = NULL;
}
