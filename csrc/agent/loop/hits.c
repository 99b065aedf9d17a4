#include "agent/loop/hits.h"

#include <math.h>

static double at(const mc_passes *all, uint64_t t)
{
    return (double)(int64_t)(t - all->t0[MC_SPAN_BEFORE]);
}

static double length(const mc_passes *all, int i)
{
    return (double)(int64_t)(all->t1[i] - all->t0[i]);
}

/* Limit of the distances that are known at every instant of the other half of the window. */
static double most(const mc_passes *all, int i)
{
    return length(all, i) / 2;
}

/* Integral of min(u, most) over u from 0 to d. */
static double integral(double d, double most_ns)
{
    return d < most_ns ? d * d / 2 : most_ns * (d - most_ns / 2);
}

/* Sum over the instants from low to high of the distance to a hit at distance d from the first instant, each
   distance cut at most_ns. */
static double between(double low, double high, double d, double most_ns)
{
    if (high <= low)
        return 0.0;
    return isinf(d) ? most_ns * (high - low) : integral(d + high - low, most_ns) - integral(d, most_ns);
}

/* Sum of the times since the last hit, until t. */
static double aged(const mc_track *track, double t)
{
    double far = most(track->all, MC_SPAN_BEFORE), low = fmax(track->last_before, far);
    return between(low, t, low - track->last_before, far);
}

/* Sum of the times until the next hit, which is at t. */
static double led(const mc_track *track, double t)
{
    const mc_passes *all = track->all;
    double far = most(all, MC_SPAN_AFTER), begin = at(all, all->t0[MC_SPAN_AFTER]);
    double low = fmax(track->last_after, begin), high = fmin(t, begin + far);
    return between(low, high, t - high, far);
}

void mc_track_begin(mc_track *track, const mc_passes *all)
{
    *track = (mc_track){.all = all,
                        .last_before = -INFINITY,
                        .last_far = -INFINITY,
                        .last_near = -INFINITY,
                        .first_near = INFINITY,
                        .first_far = INFINITY,
                        .last_after = -INFINITY};
}

void mc_track_hit(mc_track *track, uint64_t t)
{
    const mc_passes *all = track->all;
    double x = at(all, t);
    track->n_all++;
    for (int i = 0; i < MC_N_SPANS; i++)
        track->n[i] += t >= all->t0[i] && t < all->t1[i];
    if (t < all->t0[MC_SPAN_BEGIN])
        track->last_far = x;
    if (t < all->t1[MC_SPAN_BEGIN])
        track->last_near = x;
    if (t >= all->t0[MC_SPAN_END])
        track->first_near = fmin(track->first_near, x);
    if (t >= all->t1[MC_SPAN_END])
        track->first_far = fmin(track->first_far, x);
    if (t >= all->t0[MC_SPAN_BEFORE] && t < all->t1[MC_SPAN_BEFORE]) {
        track->age += aged(track, x);
        track->last_before = x;
    }
    if (t >= all->t0[MC_SPAN_AFTER] && t < all->t1[MC_SPAN_AFTER]) {
        track->lead += led(track, x);
        track->last_after = x;
    }
}

/* Add both distances, which point away from the window: `far` is from the far end of the edge, `near` from the
   window. */
static void add_edge(mc_edge *edge, double far, double near, double width, double most_ns, double mean, double rate)
{
    edge->far += rate * fmin(far, most_ns);
    edge->mean += rate * mean;
    if (near <= width)
        edge->inside += rate * near;
    else if (far < most_ns)
        edge->inside += rate * width;
    if (near > width)
        edge->outside += rate * fmin(far, most_ns);
}

void mc_track_end(mc_track *track, mc_passes *all, uint64_t ran_ns)
{
    double before = length(all, MC_SPAN_BEFORE), after = length(all, MC_SPAN_AFTER);
    uint64_t n = track->n[MC_SPAN_BEFORE] + track->n[MC_SPAN_AFTER];
    for (int i = 0; i < MC_N_SPANS; i++)
        all->n[i] += track->n[i];
    all->n_all += track->n_all;
    if (n == 0 || before <= 0.0 || after <= 0.0)
        return;
    double rate = (double)n / (before + after);
    track->age += aged(track, at(all, all->t1[MC_SPAN_BEFORE]));
    track->lead += led(track, INFINITY);
    add_edge(&all->begin, at(all, all->t0[MC_SPAN_BEGIN]) - track->last_far,
             at(all, all->t1[MC_SPAN_BEGIN]) - track->last_near, length(all, MC_SPAN_BEGIN), most(all, MC_SPAN_BEFORE),
             track->age / (before / 2), rate);
    add_edge(&all->end, track->first_far - at(all, all->t1[MC_SPAN_END]),
             track->first_near - at(all, all->t0[MC_SPAN_END]), length(all, MC_SPAN_END), most(all, MC_SPAN_AFTER),
             track->lead / (after / 2), rate);
    all->ran_ns += ran_ns;
    all->n_threads++;
}
