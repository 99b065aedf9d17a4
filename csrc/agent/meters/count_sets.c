#include "agent/meters/count_sets.h"

#include "agent/count/stubs.h"

#include <stdio.h>

enum { N_SETS_FOR_COVERAGE = 3 /* so many sets may follow each other only because they cover more */ };

static const double COVERAGE_MIN = 0.6, COVERAGE_WANTED = 0.85, COVERAGE_GAIN = 0.05;

void mc_count_use_set(mc_count_meter *count, int i_set)
{
    char text[96];
    count->i_set = i_set;
    count->node->meter = MC_METER_COUNT;
    snprintf(text, sizeof text, "%d places are counted", (int)count->node->counts.sets[i_set].n);
    mc_count_explain(count, text);
}

const mc_place_set *mc_count_present_set(const mc_count_meter *count)
{
    return count->i_set >= 0 ? &count->node->counts.sets[count->i_set] : NULL;
}

/* A phase of the program that was there before. */
int mc_count_known_set(const mc_count_meter *count)
{
    const mc_counts *counts = &count->node->counts;
    int i_best = -1;
    double best = counts->n_sets < N_SETS_FOR_COVERAGE ? COVERAGE_WANTED : COVERAGE_MIN;
    for (int i = 0; i < (int)counts->n_sets; i++) {
        double coverage = mc_places_coverage(&counts->sets[i], count->spots);
        if (!count->is_dropped[i] && coverage >= best + (i == count->i_set ? 0.0 : 0.05)) {
            best = coverage;
            i_best = i;
        }
    }
    return i_best;
}

int mc_count_make_stubs(mc_count_meter *count, mc_place_set *set)
{
    return mc_stubs_make(set, count->decoder, &count->files, &count->node->counts, count->ranks);
}

/* Rows of counts have its places by their index, so it must not lose one. */
int mc_count_make_known_stubs(mc_count_meter *count, int i_set)
{
    mc_place_set set = count->node->counts.sets[i_set];
    uint64_t n = set.n;
    return mc_count_make_stubs(count, &set) == MC_OK && set.n == n;
}

void mc_count_drop_set(mc_count_meter *count)
{
    count->is_dropped[count->i_set] = 1;
    count->i_set = -1;
}

/* A new set would only split the shutters into those with one and those with the other. */
int mc_count_covers_no_more(const mc_count_meter *count, const mc_place_set *set)
{
    const mc_place_set *present = mc_count_present_set(count);
    return present && !count->is_dropped[count->i_set] &&
           mc_places_coverage(set, count->spots) < mc_places_coverage(present, count->spots) + COVERAGE_GAIN;
}

/* Of a set that had become too expensive. Rows of counts have places by their index, so this is a new set. */
void mc_count_use_thinned(mc_count_meter *count)
{
    mc_counts *counts = &count->node->counts;
    mc_place_set *set = &counts->sets[counts->n_sets];
    int status = MC_E_GONE;
    if (counts->n_sets < MC_N_PLACE_SETS && count->thinned.n) {
        *set = count->thinned;
        status = mc_count_make_stubs(count, set);
    }
    if (status == MC_E_FULL)
        return;
    count->has_thinned = 0;
    if (status == MC_OK)
        mc_count_use_set(count, (int)counts->n_sets++);
    else
        count->t_next = 0;
}

/* The program may have mapped memory of its own where the stubs should be. */
void mc_count_renew_stubs(mc_count_meter *count)
{
    count->wants_stubs = 0;
    if (count->i_set >= 0 && !mc_count_make_known_stubs(count, count->i_set)) {
        mc_count_drop_set(count);
        count->t_next = 0;
    }
}
