/* The meter `count` counts how often the program passes some of its hot places, in windows before and during each
   shutter of this job. In these windows, instructions at the places are replaced by jumps to counters. */
#ifndef MPICOLOC_COUNT_METER_H
#define MPICOLOC_COUNT_METER_H

#include "agent/count/counters.h"
#include "agent/count/places.h"
#include "agent/count/window_samples.h"
#include "agent/shutter/own_shutter.h"

enum { MC_N_COUNT_EDGES = MC_N_WINDOW_EDGES };

/* Stages of the search for places. */
enum { MC_COUNT_IDLE, MC_COUNT_SAMPLING, MC_COUNT_TRYING };

/* Mean time for which the ranks have waited for a processor until instant t; t is 0 if it is unknown. Waits are known
   for all times, whereas places are counted only in windows. paused_ns: time for which the ranks were paused; alone_ns:
   time without co-runners, as of the agent's last reading of the board. */
typedef struct mc_waits {
    uint64_t t, waited_ns, paused_ns, alone_ns;
    int n; /* number of ranks that were read */
} mc_waits;

typedef struct mc_count_meter {
    mc_node *node;
    mc_job_ranks *ranks;
    int is_impossible; /* the meter can never count here; the node file says why */
    int is_forbidden;  /* code must not be changed: count only loops whose passes a register shows */
    int stage;
    uint64_t t_stage, t_next; /* start of this stage; earliest next search */
    int n_refused;            /* consecutive installations that a rank refused */
    int wants_stubs;          /* the stubs of the present set must be made again */
    int n_given_up;           /* sets that were given up after refusals */
    int n_put_off;            /* consecutive searches that were put off because the ranks were not ready */
    int n_searches, n_failed, n_sets_tried, n_trials;
    uint64_t t_trial;                    /* time of the last trial */
    mc_place_set tried;                  /* set under trial; n 0: none */
    int i_set;                           /* set that is counted now; -1: none */
    uint8_t is_dropped[MC_N_PLACE_SETS]; /* 1: the set cost too much in a shutter, or could not be installed */
    int has_thinned;                     /* 1: `thinned` must replace the set that was counted last */
    mc_place_set thinned;
    int takes_turns; /* the job's threads shared their processors with co-runners at the last shutter */
    int n_vain;      /* consecutive shutters that counted nothing */
    mc_decoder *decoder;
    mc_spots *spots;
    mc_places *places;
    mc_program_files files;
    mc_snapshot edges[MC_N_COUNT_EDGES];
    mc_waits waits[MC_N_COUNT_EDGES], waits_before; /* at each edge; at the end of the last shutter */
    mc_window_samples *samples;                     /* NULL: no memory */
    char why_not_ipc[MC_TEXT_LEN];
} mc_count_meter;

mc_waits mc_waits_until_now(const mc_job_ranks *ranks, const mc_node *node);
/* Mean time for which the ranks waited between two instants, and the time between these without pauses. Both are 0 if a
   rank ended in between, or if the job had no co-runners for more than a tenth of the time. */
void mc_waits_between(const mc_waits *from, const mc_waits *to, uint64_t *ns, uint64_t *waited_ns);

#endif
