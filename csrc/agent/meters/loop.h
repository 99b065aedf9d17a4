/* The meter loop: an entry of the program is chosen while the job runs, and its executions are counted in windows
   before, in and after each shutter of this job. */
#ifndef MPICOLOC_LOOP_METER_H
#define MPICOLOC_LOOP_METER_H

#include "agent/loop/search.h"
#include "agent/shutter/own_shutter.h"

enum { MC_N_PROBES = 512 };

/* What the meter does now. */
enum { MC_LOOP_WAITING, MC_LOOP_SAMPLING, MC_LOOP_TRYING, MC_LOOP_COUNTING };

typedef struct mc_loop {
    mc_node *node;
    const mc_job_ranks *ranks;
    int stage;
    int is_forced;          /* by the option: also where bursts would do */
    uint64_t t_stage;       /* this stage began */
    uint64_t t_retry;       /* no search before */
    int n_failed_searches;  /* one after another */
    int n_vain, n_found;    /* shutters one after another that counted nothing, or too much; entries found so far */
    mc_search *search;      /* NULL: none is under way */
    char path[MC_PATH_LEN]; /* what is counted */
    uint64_t offset;
    double gap_ns; /* time between two hits around a random instant */
    double line_cost;
    uint64_t hit_ns;
    mc_maps maps;
    uint64_t addresses[MC_N_NODE_RANKS]; /* of the entry in each rank; 0: not looked up */
    int n_probes;
    mc_probe probes[MC_N_PROBES];
    char no_ipc[MC_TEXT_LEN]; /* why the meter is not ipc */
} mc_loop;

/* NULL, and the node file says why: this meter cannot be. It keeps the pointers. */
mc_loop *mc_loop_open(mc_node *node, const mc_job_ranks *ranks, uint64_t t_open, int is_forced);
void mc_loop_close(mc_loop *loop);

/* Go on with the search. max_ns: of a shutter. 1: an entry was chosen now. */
int mc_loop_step(mc_loop *loop, int has_corunners, uint64_t max_ns, uint64_t now);

/* Count around this shutter, in windows of around_ns beside it. Waits until they are over, or *wake is not 0. */
void mc_loop_measure(mc_loop *loop, mc_own_shutter *own, uint64_t around_ns, int *wake);

#endif
