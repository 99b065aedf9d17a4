/* The ranks of the agent's own job on this node. */
#ifndef MPICOLOC_AGENT_RANKS_H
#define MPICOLOC_AGENT_RANKS_H

#include "common/mpicoloc.h"

#include <sched.h>
#include <time.h>

_Static_assert(sizeof(cpu_set_t) == MC_N_CPU_WORDS * sizeof(uint64_t), "masks of processors are sets of the C library");

/* Number of ranks whose waits for a processor are read. It is limited, because each read takes about 5 us. */
enum { MC_N_WAITS = 8 };

typedef struct mc_rank {
    mc_segment *segment;
    int world_rank, pid, alive;
    uint64_t start_ticks;
    clockid_t cpu_clock;
    uint64_t cpu_ns;    /* processor time when the pause had begun */
    uint64_t paused_ns; /* time paused, as of the last mc_duty_update */
    uint64_t waited_ns; /* time waited for a processor, as last read in this shutter; UINT64_MAX: unknown */
    int has_handler;    /* 1: just before the shutter, the rank had a handler for the gate's signal */
    int n_signalled;    /* number of threads signalled in this shutter */
    int n_skipped;      /* number of threads not signalled, because they sleep or block the signal */
    int is_asked;       /* the rank is asked to change its code */
    int has_window;     /* 1: the rank's segment has the window of the shutter that awaits its verdict */
    uint64_t i_window;  /* number of that window */
} mc_rank;

typedef struct mc_job_ranks {
    char key[MC_NAME_LEN];
    mc_rank *rows;
    int n, n_alive, local_size; /* number of ranks found, of ranks alive, and of all ranks of this node (0: unknown) */
    int is_multi_node;          /* the job has ranks on other nodes */
    uint64_t t_checked;
} mc_job_ranks;

/* MC_OK, MC_E_ARG (the key is too long) or MC_E_FULL. */
int mc_job_ranks_open(mc_job_ranks *ranks, const char *key);
void mc_job_ranks_close(mc_job_ranks *ranks);

/* Add the ranks that have appeared; returns the index of the first new one. */
int mc_job_ranks_find(mc_job_ranks *ranks);
/* Check which ranks are still alive. */
void mc_job_ranks_check(mc_job_ranks *ranks, uint64_t now);
int mc_job_ranks_n_finalizing(const mc_job_ranks *ranks);
/* Processors that the living ranks can run on. */
cpu_set_t mc_job_ranks_cpus(const mc_job_ranks *ranks);
/* Processor time that the living ranks have used so far. */
uint64_t mc_job_ranks_cpu_ns(const mc_job_ranks *ranks);

#endif
