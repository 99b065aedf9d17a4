#include "agent/count/loops.h"

#include "agent/shutter/intervals.h"

#include <string.h>

/* If a loop is entered again between two samples, its register steps back or shows too few passes. If passes are
   missing, the two sampling periods yield different rates. BACK_MAX limits the fraction of steps back, and
   DIFFERENCE_MAX the ratio of the two rates. */
static const double BACK_MAX = 0.15, DIFFERENCE_MAX = 1.2;

enum { N_PAIRS_MIN = 6 };

uint64_t mc_loops_first(const mc_place_set *set)
{
    uint64_t i = 0;
    while (i < set->n && i < MC_N_PLACES && !set->places[i].n_bytes)
        i++;
    return i;
}

void mc_loops_begin(mc_loops *loops, const mc_place_set *set)
{
    memset(loops, 0, sizeof *loops);
    loops->set = set;
    loops->i_first = (int)mc_loops_first(set);
    loops->n = (int)mc_min(mc_min(set->n, MC_N_PLACES) - (uint64_t)loops->i_first, MC_N_LOOPS);
    mc_loops_cut(loops);
}

void mc_loops_cut(mc_loops *loops)
{
    loops->last.i_row = -1;
}

int mc_loop_holds(const mc_place *place, uint64_t offset, uint64_t i_path)
{
    return i_path == place->i_path && offset - place->offset < place->n_bytes;
}

static int row_of(const mc_loops *loops, uint64_t offset, int i_path)
{
    for (int i = 0; i < loops->n; i++) {
        const mc_place *place = &loops->set->places[loops->i_first + i];
        if (place->step && place->unit != MC_TELLS_NOTHING && mc_loop_holds(place, offset, (uint64_t)i_path))
            return i;
    }
    return -1;
}

static void add_pair(mc_loop_windows *row, int i_window, int period, double passes, double ns)
{
    row->n_pairs[period]++;
    if (passes <= 0.0) {
        row->n_back[period]++;
        return;
    }
    row->passes[i_window] += passes;
    row->ran_ns[i_window] += ns;
    row->period_passes[period] += passes;
    row->period_ns[period] += ns;
}

void mc_loops_add(mc_loops *loops, const mc_thread_sample *sample, const mc_sample_place *where)
{
    int i = where->i_path >= 0 && sample->registers ? row_of(loops, where->offset, where->i_path) : -1;
    int was = loops->last.i_row;
    loops->last.i_row = i;
    if (i < 0)
        return;
    const mc_place *place = &loops->set->places[loops->i_first + i];
    uint64_t value = sample->registers[place->reg % MC_N_SAMPLED_REGISTERS];
    double passes = (double)(int64_t)(value - loops->last.value) / (double)place->step;
    if (was == i && loops->last.i_window == where->i_window && sample->ran_ns > loops->last.ran_ns)
        add_pair(&loops->rows[i], where->i_window, where->period, passes,
                 (double)(sample->ran_ns - loops->last.ran_ns));
    loops->rows[i].n_samples[where->i_window]++;
    loops->rows[i].sampled_ns[where->i_window] += where->stands_for_ns;
    loops->last.i_window = where->i_window;
    loops->last.value = value;
    loops->last.ran_ns = sample->ran_ns;
}

static int is_reliable(const mc_loop_windows *row)
{
    for (int i = 0; i < 2; i++)
        if (row->n_pairs[i] < N_PAIRS_MIN || (double)row->n_back[i] > BACK_MAX * (double)row->n_pairs[i])
            return 0;
    double ratio = row->period_passes[0] * row->period_ns[1] / (row->period_passes[1] * row->period_ns[0]);
    return ratio < DIFFERENCE_MAX && ratio > 1 / DIFFERENCE_MAX;
}

double mc_loops_passes(const mc_loops *loops, int i_row, int i_window)
{
    const mc_loop_windows *row = &loops->rows[i_row];
    if (!row->n_samples[i_window])
        return 0.0;
    if (!is_reliable(row) || row->ran_ns[i_window] <= 0.0)
        return -1.0;
    return row->passes[i_window] / row->ran_ns[i_window] * row->sampled_ns[i_window];
}

int mc_loops_fail(const mc_loops *loops, int i_row)
{
    const mc_loop_windows *row = &loops->rows[i_row];
    return row->n_pairs[0] >= N_PAIRS_MIN && row->n_pairs[1] >= N_PAIRS_MIN && !is_reliable(row);
}
