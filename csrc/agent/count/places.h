/* Which places of the program are counted: near where its threads are most of the time, passed neither too rarely nor
   so often that counting would slow the program down. */
#ifndef MPICOLOC_PLACES_H
#define MPICOLOC_PLACES_H

#include "agent/relocation/decoder.h"
#include "agent/count/spots.h"
#include "agent/code/object.h"

enum { MC_N_CANDIDATE_PLACES = 256 };

typedef struct mc_candidate_place {
    mc_place place;
    uint64_t n_samples;        /* taken shortly before it */
    double n_passes, thread_s; /* in trials; 0 s: not tried yet */
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
    mc_candidate_place rows[MC_N_CANDIDATE_PLACES]; /* the best first */
} mc_places;

/* Take out the samples of loops that only wait: passing through them is no progress. */
void mc_places_drop_waiting(mc_spots *spots, mc_decoder *decoder, mc_program_files *files, const mc_counts *counts);
/* Places that may be replaced: those of the present set (NULL: there is none), and from samples. */
void mc_places_find(mc_places *places, mc_decoder *decoder, mc_program_files *files, const mc_counts *counts,
                    const mc_spots *spots, const mc_place_set *present);
/* The next ones to be tried; returns their number. */
int mc_places_untried(const mc_places *places, mc_place_set *set);
/* Those of `wanted` that are not in `set` cannot be replaced. */
void mc_places_refuse(mc_places *places, const mc_place_set *wanted, const mc_place_set *set);
/* What one trial of this set found, and how much time of threads it took. */
void mc_places_tried(mc_places *places, const mc_place_set *set, const uint64_t n_passes[MC_N_PLACES], double thread_s);
/* The best of those tried, within what counting may cost. pass_ns: what one pass costs. */
void mc_places_choose(const mc_places *places, const mc_spots *spots, const mc_place_set *present, double pass_ns,
                      mc_place_set *set);
/* costs: of each place of a set, as a part of a thread's time. If they are more than counting may cost, `rest` gets the
   places that may stay, and the answer is 1. */
int mc_places_thin(const mc_place_set *set, const double costs[MC_N_PLACES], mc_place_set *rest);
/* The unit of a loop in any set; 0: it has none yet. */
uint64_t mc_places_known_unit(const mc_counts *counts, const mc_place *loop);
/* 1: this instruction is near a place of the set that a jump counts. */
int mc_places_are_near_jump(const mc_place_set *set, const mc_place *place);
/* Add loops in which threads were seen, if no place of the set is near. */
void mc_places_add_loops(mc_place_set *set, mc_decoder *decoder, mc_program_files *files, const mc_counts *counts,
                         const mc_spots *spots);
/* 1: this instruction is near a place of the set, so the place is passed while threads are there. */
int mc_places_are_near(const mc_place_set *set, const mc_place *place);
/* 1: the innermost loop around this instruction only waits. */
int mc_places_polls(mc_decoder *decoder, mc_program_files *files, const mc_counts *counts, int i_path, uint64_t offset);
/* Part of the samples in the program that are near a place of this set. */
double mc_places_coverage(const mc_place_set *set, const mc_spots *spots);

#endif
