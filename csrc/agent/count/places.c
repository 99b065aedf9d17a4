#define _GNU_SOURCE
#include "agent/count/places.h"

#include "agent/count/relocate.h"

#include <stdlib.h>
#include <string.h>

enum {
    CODE_BYTES = 256,     /* read behind a sampled instruction */
    N_PER_SPOT = 2,       /* places taken of those that follow a sampled instruction */
    NEAR_BYTES = 2048,    /* a loop with what it calls inline */
};

/* In passes per second of a thread. Rare ones tell little; what counting may cost is a part of the thread's time. */
static const double RATE_MIN = 500.0, COST_OF_ONE_MAX = 0.015, COST_MAX = 0.05;

const mc_object *mc_program_file(mc_program_files *files, const mc_counts *counts, uint64_t i_path)
{
    mc_object *object = &files->objects[i_path];
    if (!files->is_open[i_path] && mc_object_open(object, counts->paths[i_path]) != MC_OK)
        object->fd = -1;
    files->is_open[i_path] = 1;
    return object->fd >= 0 ? object : NULL;
}

void mc_program_files_close(mc_program_files *files)
{
    for (int i = 0; i < MC_N_PLACE_PATHS; i++)
        if (files->is_open[i])
            mc_object_close(&files->objects[i]);
    memset(files, 0, sizeof *files);
}

static void propose(mc_places *places, uint64_t i_path, uint64_t offset, uint64_t n_samples)
{
    for (int i = 0; i < places->n; i++) {
        mc_candidate_place *row = &places->rows[i];
        if (row->place.i_path == i_path && row->place.offset == offset) {
            row->n_samples += n_samples;
            return;
        }
    }
    if (places->n < MC_N_CANDIDATE_PLACES)
        places->rows[places->n++] = (mc_candidate_place){{offset, i_path}, n_samples, -1.0};
}

static int by_samples(const void *a, const void *b)
{
    uint64_t n_a = ((const mc_candidate_place *)a)->n_samples, n_b = ((const mc_candidate_place *)b)->n_samples;
    return (n_a < n_b) - (n_a > n_b);
}

/* Offsets serve as addresses: both have the same place in a page, and so in a word. */
void mc_places_find(mc_places *places, mc_decoder *decoder, mc_program_files *files, const mc_counts *counts,
                    const mc_spots *spots)
{
    uint8_t code[CODE_BYTES];
    places->n = 0;
    for (int i = 0; i < spots->n; i++) {
        const mc_spot *spot = &spots->rows[i];
        uint64_t found[N_PER_SPOT];
        const mc_object *object = mc_program_file(files, counts, (uint64_t)spot->i_path);
        size_t n_bytes = object ? mc_object_read(object, spot->offset, code, sizeof code) : 0;
        int n = n_bytes ? mc_replaceable(decoder, code, n_bytes, spot->offset, spot->offset, N_PER_SPOT, found) : 0;
        /* The first one stands for the sample; the next ones are for a first one that is passed too often. */
        for (int j = 0; j < n; j++)
            propose(places, (uint64_t)spot->i_path, found[j], j == 0 ? 4 * spot->n : spot->n);
    }
    qsort(places->rows, (size_t)places->n, sizeof *places->rows, by_samples);
}

int mc_places_untried(const mc_places *places, mc_place_set *set)
{
    set->n = 0;
    for (int i = 0; i < places->n && set->n < MC_N_PLACES; i++)
        if (places->rows[i].rate < 0.0)
            set->places[set->n++] = places->rows[i].place;
    return (int)set->n;
}

void mc_places_tried(mc_places *places, const mc_place_set *set, const double rates[MC_N_PLACES])
{
    for (uint64_t i = 0; i < set->n; i++)
        for (int j = 0; j < places->n; j++) {
            mc_candidate_place *row = &places->rows[j];
            if (row->place.i_path == set->places[i].i_path && row->place.offset == set->places[i].offset)
                row->rate = rates[i];
        }
}

void mc_places_choose(const mc_places *places, double pass_ns, mc_place_set *set)
{
    double left = COST_MAX;
    set->n = 0;
    for (int i = 0; i < places->n && set->n < MC_N_PLACES; i++) {
        const mc_candidate_place *row = &places->rows[i];
        double cost = row->rate * pass_ns * 1e-9;
        if (row->rate < RATE_MIN || cost > COST_OF_ONE_MAX || cost > left)
            continue;
        left -= cost;
        set->places[set->n++] = row->place;
    }
}

static int is_near(const mc_place_set *set, const mc_spot *spot)
{
    for (uint64_t i = 0; i < set->n; i++)
        if (set->places[i].i_path == (uint64_t)spot->i_path &&
            set->places[i].offset + NEAR_BYTES > spot->offset && spot->offset + NEAR_BYTES > set->places[i].offset)
            return 1;
    return 0;
}

double mc_places_coverage(const mc_place_set *set, const mc_spots *spots)
{
    uint64_t n = 0, n_near = 0;
    for (int i = 0; i < spots->n; i++) {
        n += spots->rows[i].n;
        n_near += is_near(set, &spots->rows[i]) ? spots->rows[i].n : 0;
    }
    return n ? (double)n_near / (double)n : 0.0;
}
