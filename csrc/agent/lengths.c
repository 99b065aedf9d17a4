#define _GNU_SOURCE
#include "agent/lengths.h"

#include "agent/shutter/intervals.h"
#include "common/options.h"

static const uint64_t ADAPT_EVERY_NS = 2000000000u;
/* Number of cycles that a shutter should hold. The edges cost the same for short and long shutters, so a few long
   shutters tell more than many short ones. */
static const double CYCLES_WISHED = 6.0;
/* A confidence interval needs several shutters. So a young job takes short shutters, however long its cycles are, and
   longer shutters later. */
static const double SHUTTERS_AT_LEAST = 5.0;
static const double SHUTTERS_SOON = 2.0; /* number of shutters for which a young job's duty limit must have room */
static const double MOST_OF_MAX = 0.8, MOST_OF_DUTY = 0.95;
static const double WORTH_A_CHANGE = 1.5;
/* A short job needs every shutter that the duty limit allows. A long job needs fewer, so it takes a full shutter in
   only one turn of three, which costs its neighbours less. With several co-runners, every third turn is for a partial
   shutter. With fewer co-runners, a long job skips that turn, and a short job takes a full shutter. The first turns are
   never partial. */
static const uint64_t YOUNG_NS = 120000000000u;
enum { TAKES_ONE_OF = 3, FULL_AT_FIRST = 8 };
static const double LEAST_DUTY_FRAC = 1e-4; /* periods are lengths divided by the duty fraction */

static uint64_t option_ns(int i_option)
{
    return (uint64_t)(mc_option_number(i_option) * 1e9);
}

void mc_lengths_open(mc_lengths *lengths, uint64_t t_open)
{
    mc_shutter_options *options = &lengths->options;
    options->max_ns = option_ns(MC_OPT_SHUTTER_MAX_S);
    options->period_ns = option_ns(MC_OPT_SHUTTER_PERIOD_S);
    options->duration_ns = option_ns(MC_OPT_SHUTTER_DURATION_S);
    options->duration_ns = mc_min(options->duration_ns, mc_max(options->max_ns, 200000));
    double duty_frac = mc_option_number(MC_OPT_SHUTTER_DUTY_FRAC);
    options->duty_frac = duty_frac > LEAST_DUTY_FRAC ? duty_frac : LEAST_DUTY_FRAC;
    options->per_turn = (uint64_t)mc_option_number(MC_OPT_SHUTTER_PER_TURN);
    options->adapts = mc_option_number(MC_OPT_SHUTTER_ADAPT) != 0.0;
    lengths->t_open = t_open;
    lengths->duration_ns = options->duration_ns;
    lengths->stretch = 1.0;
    lengths->period_ns = options->period_ns;
}

int mc_lengths_takes(mc_lengths *lengths, int may_be_partial, uint64_t now)
{
    uint64_t i = lengths->n_offered++ / mc_max(lengths->options.per_turn, 1);
    int is_partial = may_be_partial && i >= FULL_AT_FIRST && i % TAKES_ONE_OF == 1;
    if (is_partial)
        return MC_TAKE_PARTIAL;
    int is_young = !lengths->options.adapts || now < lengths->t_open + YOUNG_NS;
    return is_young || i % TAKES_ONE_OF == 0 ? MC_TAKE_FULL : MC_TAKE_NONE;
}

/* A neighbour may have a lower duty limit than this job. Such a neighbour refuses shutters that are longer than this
   job's wish. */
void mc_lengths_refused(mc_lengths *lengths, uint64_t duration_ns)
{
    if (duration_ns > lengths->duration_ns)
        lengths->stretch /= 2;
}

uint64_t mc_lengths_planned_ns(const mc_lengths *lengths, const mc_board_view *view, uint64_t now)
{
    const mc_shutter_options *options = &lengths->options;
    double n = view->n_others + 1, most = MOST_OF_MAX * (double)options->max_ns;
    uint64_t t_joined = lengths->t_open;
    if (!options->adapts || view->n_others == 0)
        return lengths->duration_ns;
    for (int i = 0; i < view->n_live; i++)
        t_joined = mc_max(t_joined, view->live[i].t_joined);
    double of_period = MOST_OF_DUTY * options->duty_frac * (double)lengths->period_ns * n / (n - 1);
    double of_time = now > t_joined ? options->duty_frac * (double)(now - t_joined) / SHUTTERS_SOON : 0.0;
    most = of_period < most ? of_period : most;
    return mc_max(lengths->duration_ns, (uint64_t)(lengths->stretch * (of_time < most ? of_time : most)));
}

int mc_lengths_is_due(const mc_lengths *lengths, const mc_board_view *view, uint64_t now)
{
    return lengths->options.adapts && mc_view_has_shutters(view) && now >= lengths->t_adapted + ADAPT_EVERY_NS;
}

void mc_lengths_adapt(mc_lengths *lengths, double cycle_ns, uint64_t now)
{
    const mc_shutter_options *options = &lengths->options;
    double low = (double)options->duration_ns, high = MOST_OF_MAX * (double)options->max_ns;
    double budget = options->duty_frac * (double)(now - lengths->t_open), present = (double)lengths->duration_ns;
    lengths->t_adapted = now;
    if (cycle_ns < 0.0)
        return;
    high = high < budget / SHUTTERS_AT_LEAST ? high : budget / SHUTTERS_AT_LEAST;
    high = high > low ? high : low;
    double wish = CYCLES_WISHED * cycle_ns;
    wish = wish < low ? low : wish > high ? high : wish;
    if (wish > present * WORTH_A_CHANGE || wish * WORTH_A_CHANGE < present)
        lengths->duration_ns = (uint64_t)wish;
}

/* The meter's own cost reduces the part of the duty limit that is left for other jobs. At least half of the limit is
   always left for them, because otherwise no co-runner could be measured here. */
static double duty_frac_for_others(const mc_lengths *lengths)
{
    double limit = lengths->options.duty_frac;
    return lengths->own_frac < limit / 2 ? limit - lengths->own_frac : limit / 2;
}

/* Period that this job needs, as a multiple of its option. All jobs on the board use the longest period that any of
   them needs. */
static uint64_t period_for(const mc_lengths *lengths, const mc_board_view *view)
{
    const mc_shutter_options *options = &lengths->options;
    double n = view->n_others + 1, unit = (double)options->period_ns, duration = (double)lengths->duration_ns;
    /* Bubbles delay the job like pauses, so they count towards the duty limit. */
    double held_frac = (n - 1 + view->bubble_frac) / n;
    double needed = duration * held_frac / duty_frac_for_others(lengths);
    needed = needed < 4.0 * duration ? 4.0 * duration : needed;
    uint64_t n_units = (uint64_t)(needed / unit);
    if ((double)n_units * unit < needed)
        n_units++;
    return mc_max(1, n_units) * options->period_ns;
}

void mc_lengths_tell(const mc_lengths *lengths, const mc_board_view *view)
{
    __atomic_store_n(&view->slot->want_duration_ns, lengths->duration_ns, __ATOMIC_RELEASE);
    __atomic_store_n(&view->slot->want_per_turn, lengths->options.per_turn, __ATOMIC_RELEASE);
    __atomic_store_n(&view->slot->want_period_ns, period_for(lengths, view), __ATOMIC_RELEASE);
}
