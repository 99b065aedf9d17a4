/* Where a job's threads are, by samples of their program counters. */
#ifndef MPICOLOC_SPOTS_H
#define MPICOLOC_SPOTS_H

#include "agent/loop/maps.h"
#include "agent/loop/probe.h"
#include "agent/shutter/ranks.h"
#include "common/mpicoloc.h"

enum { MC_N_SAMPLERS = 8, MC_N_SPOTS = 2048 };

/* An instruction that was executed just when a sample was taken: an offset in a file of mc_counts.paths. */
typedef struct mc_spot {
    uint64_t offset, n;
    int i_path;
} mc_spot;

typedef struct mc_sampler {
    mc_probe probe;
    mc_maps maps;
} mc_sampler;

typedef struct mc_spots {
    int n_samplers;
    mc_sampler *samplers; /* MC_N_SAMPLERS */
    uint64_t n_samples;   /* all, also those in libraries that do not count */
    int n;
    mc_spot rows[MC_N_SPOTS]; /* the most frequent first */
} mc_spots;

mc_spots *mc_spots_new(void); /* NULL: no memory */
void mc_spots_free(mc_spots *spots);

/* Sample some running threads of the ranks from now on, beginning with rank i_first. MC_E_GONE: none runs just now.
   MC_E_PERF with errno set. */
int mc_spots_begin(mc_spots *spots, const mc_job_ranks *ranks, const mc_counts *counts, int i_first);
uint64_t mc_spots_n_taken(const mc_spots *spots);
/* Stop, and sort what was sampled. */
void mc_spots_end(mc_spots *spots, mc_counts *counts);

#endif
