#include "agent/count/loops.h"

#include <string.h>

/* A loop that is entered again between two samples goes back, if it lasts longer than their distance. One that lasts a
   little less goes on by too few passes, but not by as few with both periods. */
static const double BACK_MAX = 0.15, DIFFERENCE_MAX = 1.2;

enum { N_PAIRS_MIN = 6 };

uint64_t mc_loops_first(const mc_place_set *set)
{
    uint64_t i = 0;
    while (i < set->n && !set->places[i].n_bytes)
        i++;
    return i;
}

void mc_loops_begin(mc_loops *loops, const mc_place_set *set)
{
    memset(loops, 0, sizeof *loops);
    loops->set = set;
    loops->i_first = (int)mc_loops_first(set);
    loops->n = (int)set->n - loops->i_first;
    loops->n = loops->n < MC_N_LOOPS ? loops->n : MC_N_LOOPS;
    mc_loops_cut(loops);
}

void mc_loops_cut(mc_loops *loops)
{
    loops->last.i_row = -1;
}

static int row_of(const mc_loops *loops, uint64_t offset, int i_path)
{
    for (int i = 0; i < loops->n; i++) {
        const mc_place *place = &loops->set->places[loops->i_first + i];
        if ((uint64_t)i_path == place->i_path && offset - place->offset < place->n_bytes)
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

void mc_loops_add(mc_loops *loops, const mc_thread_sample *sample, uint64_t offset, int i_path, int i_window,
                  int period)
{
    int i = i_path >= 0 && sample->registers ? row_of(loops, offset, i_path) : -1;
    int was = loops->last.i_row;
    loops->last.i_row = i;
    if (i < 0)
        return;
    const mc_place *place = &loops->set->places[loops->i_first + i];
    uint64_t value = sample->registers[place->reg % MC_N_SAMPLED_REGISTERS];
    if (was == i && loops->last.i_window == i_window && sample->ran_ns > loops->last.ran_ns)
        add_pair(&loops->rows[i], i_window, period, (double)(int64_t)(value - loops->last.value) / (double)place->step,
                 (double)(sample->ran_ns - loops->last.ran_ns));
    loops->rows[i].n_samples[i_window]++;
    loops->last.i_window = i_window;
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

double mc_loops_passes(const mc_loops *loops, int i_row, int i_window, uint64_t every_ns)
{
    const mc_loop_windows *row = &loops->rows[i_row];
    if (!row->n_samples[i_window])
        return 0.0;
    if (!is_reliable(row) || row->ran_ns[i_window] <= 0.0)
        return -1.0;
    return row->passes[i_window] / row->ran_ns[i_window] * (double)every_ns * (double)row->n_samples[i_window];
}
