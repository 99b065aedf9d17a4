/* Choice of the places to count. Threads spend most of their time near these places, and pass them often enough to show
   the pace, but not so often that counting slows the program down. */
#ifndef MPICOLOC_PLACES_H
#define MPICOLOC_PLACES_H

#include "agent/relocation/decoder.h"
#include "agent/count/spots.h"
#include "agent/code/object.h"

enum { MC_N_CANDIDATE_PLACES = 256 };

typedef struct mc_candidate_place {
    mc_place place;
    uint64_t n_samples;        /* samples taken shortly before the place */
    double n_passes, thread_s; /* passes and thread time in trials; 0 s: not tried yet */
    int is_refused;
} mc_candidate_place;

/* Program files, opened when they are needed. */
typedef struct mc_program_files {
    mc_object objects[MC_N_PLACE_PATHS];
    int is_open[MC_N_PLACE_PATHS];
} mc_program_files;

const mc_object *mc_program_file(mc_program_files *files, const mc_counts *counts, uint64_t i_path);
void mc_program_files_close(mc_program_files *files);

typedef struct mc_places {
    int n;
    mc_candidate_place rows[MC_N_CANDIDATE_PLACES]; /* most samples first */
} mc_places;

/* Remove the samples of loops that only wait, because passes of such loops are not progress. */
void mc_places_drop_waiting(mc_spots *spots, mc_decoder *decoder, mc_program_files *files, const mc_counts *counts);
/* Propose places that can be replaced by jumps: the places of the present set (NULL: there is none), and places near
   samples. */
void mc_places_find(mc_places *places, mc_decoder *decoder, mc_program_files *files, const mc_counts *counts,
                    const mc_spots *spots, const mc_place_set *present);
/* Fill `set` with the next places to try; returns their number. */
int mc_places_untried(const mc_places *places, mc_place_set *set);
/* Mark the places of `wanted` that are missing from `set` as refused: they cannot be replaced. */
void mc_places_refuse(mc_places *places, const mc_place_set *wanted, const mc_place_set *set);
/* Add the passes that one trial of this set counted in thread_s seconds of thread time. */
void mc_places_tried(mc_places *places, const mc_place_set *set, const uint64_t n_passes[MC_N_PLACES], double thread_s);
/* Choose the best of the places tried, within the cost limits of counting. pass_ns: cost of one pass. */
void mc_places_choose(const mc_places *places, const mc_spots *spots, const mc_place_set *present, double pass_ns,
                      mc_place_set *set);
/* If a set exceeds the cost limits, write the places that can stay to `rest` and return 1. costs: the cost of each
   place as a fraction of a thread's time. */
int mc_places_thin(const mc_place_set *set, const double costs[MC_N_PLACES], mc_place_set *rest);
/* Number of passes for which one count of this loop stands in every set; 0: not set yet. */
uint64_t mc_places_known_unit(const mc_counts *counts, const mc_place *loop);
/* 1: this instruction is near a place of the set that is counted by a jump. */
int mc_places_are_near_jump(const mc_place_set *set, const mc_place *place);
/* Add loops in which threads were sampled, unless a jump counts nearby. */
void mc_places_add_loops(mc_place_set *set, mc_decoder *decoder, mc_program_files *files, const mc_counts *counts,
                         const mc_spots *spots);
/* 1: this instruction is near a place of the set, so a thread that executes the instruction also passes the place. */
int mc_places_are_near(const mc_place_set *set, const mc_place *place);
/* 1: the innermost loop around this instruction only waits. */
int mc_places_polls(mc_decoder *decoder, mc_program_files *files, const mc_counts *counts, int i_path, uint64_t offset);
/* Fraction of the program's samples that are near a place of this set. */
double mc_places_coverage(const mc_place_set *set, const mc_spots *spots);

#endif
