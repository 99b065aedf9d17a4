#define _GNU_SOURCE
#include "agent/count/window_samples.h"

#include "agent/shutter/intervals.h"
#include "common/proc.h"
#include "common/table.h"

#include <stdlib.h>
#include <string.h>

enum {
    N_WORTH_DECODING = 3, /* an instruction's loop is decoded if it has at least this many samples */
    N_DECODED = 32,       /* most loops that are decoded after a shutter */
    N_FAILED_MAX = 4,     /* a loop is given up after this many shutters in which its passes cannot be computed */
};

/* A sample costs the thread about 12 us, which is the time that a timer interrupt takes in a virtual machine. Loops are
   sampled with two periods, in alternating windows. */
static const uint64_t EVERY_NS[2] = {500000, 370000}, SAMPLE_COST_NS = 12000, UNIT_NS = 1000;

/* Code in which a sample was taken. WAITING: a left-out library other than the C library. */
enum { NEAR, PROGRAM, LIBC, WAITING, N_KINDS };

typedef struct tally {
    uint64_t n[MC_N_COUNT_WINDOWS][N_KINDS];
} tally;

/* State of the walk through one thread's records. */
typedef struct walk {
    mc_window_samples *samples;
    const mc_sampler *sampler;
    const mc_sampler_reading *readings;
    const mc_counted_code *code;
    uint64_t i_record;
    tally *sums;
} walk;

mc_window_samples *mc_window_samples_new(void)
{
    mc_window_samples *samples = calloc(1, sizeof *samples);
    if (samples && !(samples->spots = mc_spots_new())) {
        free(samples);
        return NULL;
    }
    return samples;
}

void mc_window_samples_free(mc_window_samples *samples)
{
    if (samples)
        mc_spots_free(samples->spots);
    free(samples);
}

int mc_window_samples_begin(mc_window_samples *samples, const mc_job_ranks *ranks, const mc_place_set *set, int i_first,
                            uint64_t length_ns)
{
    if (!samples)
        return MC_E_FULL;
    memset(samples->readings, 0, sizeof samples->readings);
    samples->n_others = 0;
    mc_loops_begin(&samples->loops, set);
    /* Records with registers are long, so sample rarely enough for the records of all windows to fit into the ring. */
    samples->stretch = samples->loops.n ? 1 + length_ns / (MC_N_REGISTER_SAMPLES * EVERY_NS[1]) : 1;
    return mc_spots_begin(samples->spots, ranks, i_first, EVERY_NS[0] * samples->stretch, samples->loops.n > 0);
}

double mc_window_samples_busy_frac(const mc_window_samples *samples)
{
    double sum = 0.0;
    int n = 0;
    for (int i = 0; i < MC_N_SAMPLERS; i++) {
        const mc_sampler_reading *first = &samples->readings[i][0],
                                 *last = &samples->readings[i][MC_N_WINDOW_EDGES - 1];
        if (!first->t || last->t <= first->t)
            continue;
        sum += (double)(last->ran_ns - first->ran_ns) / (double)(last->t - first->t);
        n++;
    }
    return n ? sum / n : 1.0;
}

/* Time outside MPI so far. Only differences of it are meaningful, because it includes the pauses since the last
   call. */
MC_READS_TORN static uint64_t outside_ns(const mc_lane_head *head, uint64_t now)
{
    uint64_t t_last = head->calls.t_last, t_enter = head->t_enter;
    uint64_t end = t_enter > t_last ? t_enter : now;
    return head->gap_ns + (end > t_last ? end - t_last : 0);
}

static int period_of(int i_window)
{
    return i_window % 2;
}

/* Sampling interval in a window. */
static uint64_t every_ns(const mc_window_samples *samples, int i_window)
{
    return EVERY_NS[samples->loops.n ? period_of(i_window) : 0] * samples->stretch;
}

static void begin_period(const mc_window_samples *samples, int i_edge, const mc_sample_ring *ring)
{
    for (int i = 0; i < MC_N_COUNT_WINDOWS && samples->loops.n; i++)
        if (mc_window_begin(i) == i_edge)
            mc_sample_ring_set_every(ring, every_ns(samples, i));
}

void mc_window_samples_edge(mc_window_samples *samples, int i_edge)
{
    for (int i = 0; samples && i < samples->spots->n_samplers; i++) {
        const mc_sampler *sampler = &samples->spots->samplers[i];
        const mc_lane_head *head = mc_lane_of_thread(sampler->rank->segment, sampler->tid);
        mc_sampler_reading *reading = &samples->readings[i][i_edge];
        if (mc_sample_ring_ran_ns(&sampler->ring, &reading->ran_ns) != MC_OK)
            continue;
        begin_period(samples, i_edge, &sampler->ring);
        reading->n_records = mc_sample_ring_each(&sampler->ring, NULL, NULL);
        reading->t = mc_now_ns();
        reading->outside_ns = head ? outside_ns(head, reading->t) : 0;
        reading->waited_ns = mc_proc_waited_ns(sampler->rank->pid, sampler->tid);
    }
}

static int is_in_stub(const mc_sampler *sampler, uint64_t address)
{
    const mc_counting *counting = &sampler->rank->segment->counting;
    for (int i = 0; i < MC_N_STUB_PAGES; i++)
        if (counting->pages[i].address && address - counting->pages[i].address < MC_STUB_PAGE_BYTES)
            return 1;
    return 0;
}

static void note_other(mc_window_samples *samples, uint64_t offset, int i_path, int i_window)
{
    mc_other_spot *others = samples->others;
    int i = 0;
    while (i < samples->n_others && (others[i].offset != offset || others[i].i_path != i_path))
        i++;
    if (i == MC_N_OTHER_SPOTS)
        return;
    if (i == samples->n_others)
        others[samples->n_others++] = (mc_other_spot){.offset = offset, .i_path = i_path};
    others[i].n[i_window]++;
}

/* Time for which one sample stands. The sampling interval restarts with each window, so a window has fewer samples than
   its length divided by the interval. */
static double stands_for_ns(const walk *all, int i_window)
{
    const mc_sampler_reading *begin = &all->readings[mc_window_begin(i_window)];
    uint64_t ran_ns = begin[1].ran_ns - begin->ran_ns, n = ran_ns / every_ns(all->samples, i_window);
    return (double)ran_ns / (double)(n ? n : 1);
}

static int classify(walk *all, const mc_thread_sample *sample, int i_window)
{
    uint64_t address = sample->address;
    const mc_maps *maps = &all->sampler->maps;
    const mc_map *map = mc_maps_find(maps, address);
    const mc_range *passed_over = map ? NULL : mc_maps_passed_over(maps, address);
    if (!map)
        mc_loops_cut(&all->samples->loops);
    if (passed_over)
        return passed_over->is_libc ? LIBC : WAITING;
    if (!map)
        return is_in_stub(all->sampler, address) ? NEAR : PROGRAM;
    int i_path = mc_spots_path(all->code->counts, maps->paths[map->i_path]);
    uint64_t offset = address - map->start + map->offset;
    const mc_sample_place where = {offset, i_path, i_window, period_of(i_window), stands_for_ns(all, i_window)};
    mc_loops_add(&all->samples->loops, sample, &where);
    if (i_path >= 0 && mc_places_are_near(all->code->set, &(mc_place){.offset = offset, .i_path = (uint64_t)i_path}))
        return NEAR;
    if (i_path >= 0)
        note_other(all->samples, offset, i_path, i_window);
    return PROGRAM;
}

static void add_record(void *data, const mc_thread_sample *sample)
{
    walk *all = data;
    uint64_t i_record = all->i_record++;
    for (int i = 0; i < MC_N_COUNT_WINDOWS; i++) {
        const mc_sampler_reading *begin = &all->readings[mc_window_begin(i)], *end = begin + 1;
        if (begin->t && end->t && i_record >= begin->n_records && i_record < end->n_records)
            all->sums->n[i][classify(all, sample, i)]++;
    }
}

/* Fraction of the window for which the thread was outside MPI, from its own call times; below 0: unknown. */
static double outside_frac(const mc_sampler_reading *begin)
{
    const mc_sampler_reading *end = begin + 1;
    if (!begin->outside_ns || !end->outside_ns || end->t <= begin->t)
        return -1.0;
    /* If a call ended between the two readings, pauses before the window are included in only one of them. */
    double outside = (double)end->outside_ns - (double)begin->outside_ns, window = (double)(end->t - begin->t);
    return outside <= window ? outside / window : 1.0;
}

/* Number of samples of a thread outside MPI in a window. Samples that fall into the kernel have no record. */
static uint64_t n_outside(const mc_sampler_reading *begin, uint64_t distance_ns, const uint64_t n[N_KINDS])
{
    const mc_sampler_reading *end = begin + 1;
    uint64_t n_program = n[NEAR] + n[PROGRAM], n_records = end->n_records - begin->n_records;
    uint64_t n_all = (end->ran_ns - begin->ran_ns) / distance_ns;
    uint64_t n_most = n_program + n[LIBC] + (n_all > n_records ? n_all - n_records : 0);
    double frac = outside_frac(begin);
    return frac < 0.0 ? n_program : mc_max(n_program, mc_min((uint64_t)(frac * (double)n_all + 0.5), n_most));
}

static void remember(mc_window_samples *samples, const mc_other_spot *other)
{
    uint64_t n = 0;
    for (int i = 0; i < MC_N_BEFORE_WINDOWS; i++)
        n += other->n[i] * every_ns(samples, i);
    if (n)
        mc_spot_add(samples->missed, &samples->n_missed, MC_N_MISSED_SPOTS,
                    &(mc_spot){other->offset, n, other->i_path});
}

void mc_window_samples_recall(mc_window_samples *samples, mc_spots *spots)
{
    for (int i = 0; samples && i < samples->n_missed; i++) {
        mc_spot missed = samples->missed[i];
        missed.n /= MC_SAMPLE_EVERY_NS;
        if (missed.n)
            mc_spot_add(spots->rows, &spots->n, MC_N_SPOTS, &missed);
    }
    mc_spots_sort(spots);
    if (samples)
        samples->n_missed = 0;
}

/* Remove samples of loops that only wait: waiting is not work, whatever code it is in. */
static void take_out_waiting(mc_window_samples *samples, const mc_counted_code *code, mc_shutter *shutter)
{
    int n_decoded = 0;
    for (int i = 0; i < samples->n_others && n_decoded < N_DECODED; i++) {
        mc_other_spot *other = &samples->others[i];
        uint64_t n_all = 0;
        for (int j = 0; j < MC_N_COUNT_WINDOWS; j++)
            n_all += other->n[j];
        if (n_all < N_WORTH_DECODING)
            continue;
        n_decoded++;
        if (!mc_places_polls(code->decoder, code->files, code->counts, other->i_path, other->offset))
            continue;
        other->is_waiting = 1;
        for (int j = 0; j < MC_N_COUNT_WINDOWS; j++)
            shutter->n_samples[j] -= mc_min(other->n[j], shutter->n_samples[j] - shutter->n_near[j]);
    }
}

/* If a loop's passes are unknown, treat the loop's samples as far from all places, unless a place nearby is counted by
   a jump. */
static void take_out_unknown(mc_window_samples *samples, mc_shutter *shutter)
{
    const mc_place_set *set = samples->loops.set;
    for (int i = 0; i < samples->loops.n; i++) {
        const mc_place *loop = &set->places[samples->loops.i_first + i];
        for (int j = 0; j < MC_N_COUNT_WINDOWS; j++)
            if (mc_loops_passes(&samples->loops, i, j) < 0.0 && !mc_places_are_near_jump(set, loop))
                shutter->n_near[j] -= mc_min(samples->loops.rows[i].n_samples[j], shutter->n_near[j]);
    }
}

/* Unit of a loop's passes: the number of passes in UNIT_NS. */
static uint64_t unit_of(const mc_loop_windows *row)
{
    double passes = 0.0, ns = 0.0;
    for (int i = 0; i < 2; i++) {
        passes += row->period_passes[i];
        ns += row->period_ns[i];
    }
    double unit = ns > 0.0 ? passes / ns * (double)UNIT_NS : 0.0;
    return unit > 1.0 ? (uint64_t)unit : 1;
}

static uint64_t note_passes(const mc_loops *loops, int i_row, mc_place *place, mc_count_row *row)
{
    uint64_t n_all = 0;
    for (int j = 0; j < MC_N_COUNT_WINDOWS; j++) {
        double passes = mc_loops_passes(loops, i_row, j);
        if (passes <= 0.0)
            continue;
        if (!place->unit)
            place->unit = unit_of(&loops->rows[i_row]);
        passes /= (double)place->unit;
        uint32_t n = passes < (double)UINT32_MAX ? (uint32_t)(passes + 0.5) : UINT32_MAX;
        row->n[j][loops->i_first + i_row] = n;
        n_all += n;
    }
    return n_all;
}

uint64_t mc_window_samples_loops(mc_window_samples *samples, mc_counts *counts, mc_count_row *row)
{
    uint64_t n_all = 0;
    if (samples && samples->i_set != row->i_set) {
        memset(samples->n_failed, 0, sizeof samples->n_failed);
        samples->i_set = row->i_set;
    }
    for (int i = 0; samples && i < samples->loops.n; i++) {
        mc_place *place = &counts->sets[row->i_set].places[samples->loops.i_first + i];
        if (!place->unit)
            place->unit = mc_places_known_unit(counts, place);
        if (place->unit == MC_TELLS_NOTHING)
            continue;
        n_all += note_passes(&samples->loops, i, place, row);
        if (mc_loops_fail(&samples->loops, i) && ++samples->n_failed[i] == N_FAILED_MAX)
            place->unit = MC_TELLS_NOTHING;
    }
    return n_all;
}

/* The longest time for which one thread waited for a processor, as a fraction of a window. This is not a mean over the
   threads, because the other threads may have waited for that thread in MPI. The kernel counts a wait at its end, so a
   wait may have begun before the window. */
static double waited_frac(const mc_window_samples *samples, int begin)
{
    double most = -1.0;
    for (int i = 0; i < samples->spots->n_samplers; i++) {
        const mc_sampler_reading *from = &samples->readings[i][begin], *to = from + 1;
        if (!from->t || to->t <= from->t || from->waited_ns == UINT64_MAX || to->waited_ns == UINT64_MAX)
            continue;
        double frac = (double)(to->waited_ns - from->waited_ns) / (double)(to->t - from->t);
        most = frac > most ? frac : most;
    }
    return most < 1.0 ? most : 1.0;
}

void mc_window_samples_end(mc_window_samples *samples, const mc_counted_code *code, mc_shutter *shutter,
                           uint64_t *cost_ns)
{
    shutter->waited_frac = -1.0;
    if (!samples)
        return;
    shutter->waited_frac = waited_frac(samples, mc_window_begin(MC_N_BEFORE_WINDOWS));
    for (int i = 0; i < samples->spots->n_samplers; i++) {
        tally sums = {{{0}}};
        const mc_sampler_reading *readings = samples->readings[i];
        walk all = {samples, &samples->spots->samplers[i], readings, code, 0, &sums};
        mc_loops_cut(&samples->loops);
        mc_sample_ring_stop(&all.sampler->ring);
        mc_sample_ring_each(&all.sampler->ring, add_record, &all);
        *cost_ns += all.i_record * SAMPLE_COST_NS;
        for (int j = 0; j < MC_N_COUNT_WINDOWS; j++) {
            const mc_sampler_reading *begin = &readings[mc_window_begin(j)];
            if (!begin->t || !begin[1].t)
                continue;
            shutter->n_near[j] += sums.n[j][NEAR];
            shutter->n_samples[j] += n_outside(begin, every_ns(samples, j), sums.n[j]);
        }
    }
    take_out_waiting(samples, code, shutter);
    take_out_unknown(samples, shutter);
    for (int i = 0; i < samples->n_others; i++)
        if (!samples->others[i].is_waiting)
            remember(samples, &samples->others[i]);
    mc_spots_stop(samples->spots);
}
