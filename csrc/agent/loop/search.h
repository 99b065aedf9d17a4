/* The search for a place in the program whose executions can stand for a job's progress: the entry of a function, or
   the place where a call returns. Places are found by sampling and chosen by trials. */
#ifndef MPICOLOC_LOOP_H
#define MPICOLOC_LOOP_H

#include "agent/loop/entries.h"
#include "agent/loop/maps.h"
#include "agent/loop/probe.h"

enum { MC_N_SAMPLED = 3, MC_N_CANDIDATES = 512, MC_N_AT_ONCE = 3 };

/* A running thread that is sampled. */
typedef struct mc_sampled {
    int tid;
    mc_probe stacks, places;
    mc_maps maps;
    mc_object objects[MC_N_MAP_PATHS]; /* by path of the maps; opened when needed */
    unsigned char opened[MC_N_MAP_PATHS];
} mc_sampled;

typedef struct mc_candidate {
    mc_sampled *thread; /* where it was seen first */
    int i_path;
    uint64_t offset; /* in the file */
    uint64_t n_seen, i_seen;
    uint64_t n_hits, ran_ns;
    double gap_ns;    /* time between two hits around a random instant */
    double unsure_ns; /* uncertainty of its count in a window, as time */
} mc_candidate;

typedef struct mc_search {
    double line_cost;
    int n_sampled, n_candidates;
    uint64_t i_sample, n_hits; /* hits of all trials */
    mc_sampled sampled[MC_N_SAMPLED];
    mc_candidate candidates[MC_N_CANDIDATES];
    int i_next, n_trials;
    int has_room; /* the processor had a breakpoint left */
    int i_tried[MC_N_AT_ONCE];
    uint64_t t_trial; /* begin of the present trials */
    mc_probe trials[MC_N_AT_ONCE];
} mc_search;

mc_search *mc_search_new(double line_cost); /* NULL: no memory */
void mc_search_free(mc_search *search);

/* Sample a thread from now on; MC_E_PERF with errno set. */
int mc_search_sample(mc_search *search, int pid, int tid);

/* Number of instants sampled so far. */
uint64_t mc_search_n_places(const mc_search *search);

/* Turn the samples into candidates, the most frequent first, and add the calls in their functions; returns their
   number. */
int mc_search_candidates(mc_search *search);

/* Put breakpoints on the next candidates; 0: all have been tried. The kernel removes each after a few hits. */
int mc_search_try(mc_search *search);

/* Read the trials. 0: a rare candidate needs more time. */
int mc_search_judge(mc_search *search, int is_last);

/* The best so far; NULL: none is usable. */
const mc_candidate *mc_search_best(const mc_search *search);
/* 0: the best is good, or the last many were no better. */
int mc_search_goes_on(const mc_search *search);
const char *mc_candidate_path(const mc_candidate *candidate);

#endif
