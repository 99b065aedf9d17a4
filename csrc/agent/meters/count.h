/* The meter count: how often the program passes some of its hot places, in windows before and in each shutter of this
   job. Instructions there are replaced by jumps to counters, for as long as the windows last. */
#ifndef MPICOLOC_COUNT_METER_H
#define MPICOLOC_COUNT_METER_H

#include "agent/count/counters.h"
#include "agent/count/places.h"
#include "agent/count/window_samples.h"
#include "agent/shutter/own_shutter.h"

enum { MC_N_COUNT_EDGES = MC_N_WINDOW_EDGES };

/* How the search for places goes. */
enum { MC_COUNT_IDLE, MC_COUNT_SAMPLING, MC_COUNT_TRYING };

/* Bytes that the MPI calls of one rank have moved until one instant, which is known for all the time, where places are
   counted in windows only. t 0: unknown. alone_ns: time without co-runners, as of the agent's last look; paused_ns: for which
   the ranks stood still. */
typedef struct mc_moved {
    uint64_t t, bytes, paused_ns, alone_ns;
    int pid; /* of the rank */
} mc_moved;

typedef struct mc_count_meter {
    mc_node *node;
    mc_job_ranks *ranks;
    int is_impossible; /* for good; the node file says why */
    int is_forbidden;  /* to change code: only loops whose registers tell their passes are counted */
    int stage;
    uint64_t t_stage, t_next; /* this stage began; no search before */
    int n_refused;            /* installations, one after another, that a rank could not make */
    int wants_stubs;          /* those of the present set are to be made anew */
    int n_given_up;           /* sets that were given up because of that */
    int n_put_off;            /* searches, one after another, for which the ranks were not ready */
    int n_searches, n_failed, n_sets_tried, n_trials;
    uint64_t t_trial;                    /* the last one */
    mc_place_set tried;                  /* n 0: none is under trial */
    int i_set;                           /* set that is counted now; -1: none */
    uint8_t is_dropped[MC_N_PLACE_SETS]; /* cost too much in a shutter, or cannot be installed */
    int has_thinned;                     /* the set that was counted last is to be replaced by this one */
    mc_place_set thinned;
    int takes_turns; /* its threads share their processors with co-runners, as seen at the last shutter */
    int n_vain;      /* shutters one after another that counted nothing */
    mc_decoder *decoder;
    mc_spots *spots;
    mc_places *places;
    mc_program_files files;
    mc_snapshot edges[MC_N_COUNT_EDGES];
    mc_moved moved[MC_N_COUNT_EDGES], moved_before; /* at the edges; at the end of the last shutter */
    mc_window_samples *samples;                     /* NULL: no memory */
    char why_not_ipc[MC_TEXT_LEN];
} mc_count_meter;

mc_moved mc_moved_until_now(const mc_job_ranks *ranks, const mc_node *node);
/* Between two instants. *ns is without pauses, and 0 if not all of that time was beside co-runners or the rank is not
   the same. */
void mc_moved_between(const mc_moved *from, const mc_moved *to, uint64_t *ns, uint64_t *bytes);

#endif
