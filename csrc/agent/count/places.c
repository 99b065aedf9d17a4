#define _GNU_SOURCE
#include "agent/count/places.h"

#include "agent/count/loops.h"
#include "agent/relocation/polling.h"
#include "agent/relocation/relocate.h"
#include "agent/relocation/steps.h"

#include <stdlib.h>
#include <string.h>

enum {
    BEHIND_BYTES = 512, /* bytes read after a sampled instruction */
    N_LOOKED_AT = 256,  /* number of spots that are examined, the most frequent first; the others have few samples */
    N_PER_SPOT = 8,     /* places proposed after a sampled instruction */
    N_HEADS = 3,        /* number of loops around a sample for which places are proposed too */
    N_PER_HEAD = 2,     /* places proposed from the start of such a loop */
    N_PER_BLOCK = 8,    /* largest number of candidates in a block, to leave room for less frequent code */
    PRESENT_SAMPLES = 1000000, /* number of samples given to places of the present set, so that they are tried first */
    N_KEPT = 40,   /* places kept from the present set: sets that share half of their places give comparable counts */
    N_SPREAD = 56, /* places chosen to be near most of the sampled code */
    NEAR_BYTES = 2048, /* size of a loop with inlined calls */
    BLOCK_BYTES = 512,
    N_SURELY_ALIKE = 1000, /* from this many passes on, equal numbers are no coincidence */
    LINE_BYTES = 64,
};

/* Rates are passes per second of a thread. A window of 12 ms has 240 passes at RATE_GOOD, but only 6 passes at
   RATE_MIN, where one pass more or less changes the count by a sixth. Costs are fractions of the thread's time. */
static const double RATE_MIN = 500.0, RATE_GOOD = 20000.0, CHEAP_COST = 0.006, COST_OF_ONE_MAX = 0.045, COST_MAX = 0.08;
/* Cost limits of a set in use. These limits are higher than those of a new set, because rates differ between windows,
   and a set that loses its most expensive places may miss the program's hottest loop. */
static const double COST_OF_ONE_KEPT = 0.09, COST_KEPT = 0.16;
static const double ALIKE_FRAC = 0.002;
/* Least fraction of the samples for which an instruction's loop is decoded. */
static const double LOOP_FRAC = 0.01;

/* 1: the file has code in Go or Ada. The runtimes of these languages look up the instruction of a fault or of a stopped
   thread, but they have no entry for instructions in a stub. Ada's runtime may be linked into the program. */
static int is_of_language(const mc_object *object)
{
    static const char *const sections[] = {".gopclntab", ".data.rel.ro.gopclntab", ".note.go.buildid", ".go.buildinfo"};
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        if (mc_object_has_section(object, sections[i]))
            return 1;
    return mc_object_section_holds(object, ".dynstr", "libgnat") ||
           mc_object_section_holds(object, ".dynstr", "__gnat_") ||
           mc_object_section_holds(object, ".strtab", "__gnat_personality");
}

/* 1: code of this file must not be replaced. The kernel restarts a restartable sequence only if the thread is inside
   the bounds of the sequence, and a stub is outside these bounds. The SIGSEGV handler of a virtual machine looks up the
   instruction that faulted. */
static int is_exempt(const mc_object *object, const char *path)
{
    static const char *const names[] = {"/libjvm.", "/libjulia", "/libcoreclr."};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strstr(path, names[i]))
            return 1;
    return mc_object_has_section(object, "__rseq_cs") || is_of_language(object);
}

const mc_object *mc_program_file(mc_program_files *files, const mc_counts *counts, uint64_t i_path)
{
    mc_object *object = &files->objects[i_path];
    const char *path = counts->paths[i_path];
    if (!files->is_open[i_path] && mc_object_open(object, path) != MC_OK)
        object->fd = -1;
    else if (!files->is_open[i_path] && is_exempt(object, path))
        mc_object_close(object);
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

static mc_candidate_place *find(mc_places *places, const mc_place *place)
{
    for (int i = 0; i < places->n; i++) {
        mc_candidate_place *row = &places->rows[i];
        if (row->place.i_path == place->i_path && row->place.offset == place->offset)
            return row;
    }
    return NULL;
}

static int are_close(const mc_place *a, const mc_place *b, uint64_t bytes)
{
    return a->i_path == b->i_path && a->offset + bytes > b->offset && b->offset + bytes > a->offset;
}

static int n_in_block(const mc_places *places, const mc_place *place)
{
    int n = 0;
    for (int i = 0; i < places->n; i++)
        n += are_close(&places->rows[i].place, place, BLOCK_BYTES / 2);
    return n;
}

static int has_room(const mc_places *places, const mc_place *place)
{
    return places->n < MC_N_CANDIDATE_PLACES && n_in_block(places, place) < N_PER_BLOCK;
}

static int by_samples(const void *a, const void *b)
{
    uint64_t n_a = ((const mc_candidate_place *)a)->n_samples, n_b = ((const mc_candidate_place *)b)->n_samples;
    return (n_a < n_b) - (n_a > n_b);
}

/* Code around a sample. File offsets serve as addresses, because an offset and its address have the same position
   within a page, and so within a word. */
typedef struct surroundings {
    uint8_t code[MC_LOOP_BYTES + MC_WORD_BYTES + BEHIND_BYTES];
    size_t n;
    uint64_t base;
} surroundings;

static void read_around(surroundings *around, uint64_t begin, mc_program_files *files, const mc_counts *counts,
                        const mc_spot *spot)
{
    const mc_object *object = mc_program_file(files, counts, (uint64_t)spot->i_path);
    around->base = begin;
    around->n = object ? mc_object_read(object, begin, around->code, (size_t)(spot->offset + BEHIND_BYTES - begin)) : 0;
}

/* Propose places from this instruction on. */
static void propose_from(mc_places *places, mc_decoder *decoder, mc_program_files *files, const mc_counts *counts,
                         const mc_spot *spot, int n_max)
{
    surroundings around;
    uint64_t found[N_PER_SPOT];
    read_around(&around, mc_context_begin(spot->offset), files, counts, spot);
    int n = mc_replaceable(decoder, around.code, around.n, around.base, spot->offset, n_max, found);
    for (int i = 0; i < n; i++) {
        mc_place place = {.offset = found[i], .i_path = (uint64_t)spot->i_path};
        mc_candidate_place *row = find(places, &place);
        if (row)
            row->n_samples += spot->n;
        else if (has_room(places, &place) && !mc_polls(decoder, around.code, around.n, around.base, found[i]))
            places->rows[places->n++] = (mc_candidate_place){.place = place, .n_samples = spot->n};
    }
}

/* Propose places in the loops around a sample. The search begins at the start of each loop, which is before the sample.
   The innermost loop may have no place, or may be passed too often; the loop around it is cheaper to count and shows
   the pace just as well. */
static void propose_heads(mc_places *places, mc_decoder *decoder, mc_program_files *files, const mc_counts *counts,
                          const mc_spot *spot)
{
    surroundings around;
    uint64_t heads[N_HEADS];
    read_around(&around, spot->offset > MC_LOOP_BYTES ? spot->offset - MC_LOOP_BYTES : 0, files, counts, spot);
    int n = mc_loop_heads(decoder, around.code, around.n, around.base, spot->offset, N_HEADS, heads);
    for (int i = n - 1; i >= 0; i--)
        propose_from(places, decoder, files, counts, &(mc_spot){heads[i], spot->n, spot->i_path}, N_PER_HEAD);
}

void mc_places_find(mc_places *places, mc_decoder *decoder, mc_program_files *files, const mc_counts *counts,
                    const mc_spots *spots, const mc_place_set *present)
{
    places->n = 0;
    for (uint64_t i = 0; present && i < mc_loops_first(present); i++)
        places->rows[places->n++] = (mc_candidate_place){.place = present->places[i], .n_samples = PRESENT_SAMPLES};
    for (int i = 0; i < spots->n && places->n < MC_N_CANDIDATE_PLACES; i++) {
        propose_heads(places, decoder, files, counts, &spots->rows[i]);
        propose_from(places, decoder, files, counts, &spots->rows[i], N_PER_SPOT);
    }
    qsort(places->rows, (size_t)places->n, sizeof *places->rows, by_samples);
}

void mc_places_drop_waiting(mc_spots *spots, mc_decoder *decoder, mc_program_files *files, const mc_counts *counts)
{
    surroundings around;
    int n = 0;
    for (int i = 0; i < spots->n; i++) {
        int is_waiting = 0;
        if (i < N_LOOKED_AT) {
            read_around(&around, mc_context_begin(spots->rows[i].offset), files, counts, &spots->rows[i]);
            is_waiting = mc_polls(decoder, around.code, around.n, around.base, spots->rows[i].offset);
        }
        if (!is_waiting)
            spots->rows[n++] = spots->rows[i];
    }
    spots->n = n;
}

int mc_places_untried(const mc_places *places, mc_place_set *set)
{
    set->n = 0;
    for (int i = 0; i < places->n && set->n < MC_N_PLACES; i++)
        if (places->rows[i].thread_s == 0.0 && !places->rows[i].is_refused)
            set->places[set->n++] = places->rows[i].place;
    return (int)set->n;
}

void mc_places_refuse(mc_places *places, const mc_place_set *wanted, const mc_place_set *set)
{
    for (uint64_t i = 0, j = 0; i < wanted->n; i++) {
        const mc_place *place = &wanted->places[i];
        if (j < set->n && set->places[j].i_path == place->i_path && set->places[j].offset == place->offset)
            j++;
        else
            find(places, place)->is_refused = 1;
    }
}

void mc_places_tried(mc_places *places, const mc_place_set *set, const uint64_t n_passes[MC_N_PLACES], double thread_s)
{
    for (uint64_t i = 0; i < set->n; i++) {
        mc_candidate_place *row = find(places, &set->places[i]);
        row->n_passes += (double)n_passes[i];
        row->thread_s += thread_s;
    }
}

static double rate(const mc_candidate_place *row)
{
    return row->thread_s > 0.0 ? row->n_passes / row->thread_s : 0.0;
}

/* 1: the places are passed equally often in all trials, or are close to each other and passed nearly equally often. */
static int are_alike(const mc_candidate_place *a, const mc_candidate_place *b)
{
    if (a->thread_s == b->thread_s && a->n_passes == b->n_passes && a->n_passes >= N_SURELY_ALIKE)
        return 1;
    double difference = a->n_passes > b->n_passes ? a->n_passes - b->n_passes : b->n_passes - a->n_passes;
    return are_close(&a->place, &b->place, BLOCK_BYTES) && a->thread_s == b->thread_s &&
           difference < ALIKE_FRAC * a->n_passes;
}

static int is_new(const mc_places *places, int i)
{
    for (int j = 0; j < i; j++)
        if (!places->rows[j].is_refused && are_alike(&places->rows[j], &places->rows[i]))
            return 0;
    return 1;
}

static int is_near(const mc_place_set *set, const mc_place *place, uint64_t bytes)
{
    for (uint64_t i = 0; i < set->n; i++)
        if (set->places[i].unit != MC_TELLS_NOTHING && are_close(&set->places[i], place, bytes))
            return 1;
    return 0;
}

/* Add places whose cost is above `above` and at most `most`, until their costs add up to `left`. Returns the part of
   `left` that remains. */
static double add_cheaper(const mc_places *places, double pass_ns, double above, double most, double left,
                          mc_place_set *set)
{
    for (int i = 0; i < places->n && set->n < MC_N_PLACES; i++) {
        double cost = rate(&places->rows[i]) * pass_ns * 1e-9;
        if (rate(&places->rows[i]) < RATE_MIN || cost <= above || cost > most || cost > left || !is_new(places, i) ||
            is_near(set, &places->rows[i].place, 1))
            continue;
        left -= cost;
        set->places[set->n++] = places->rows[i].place;
    }
    return left;
}

/* Add places that are near samples but were hardly ever passed in the trials: such places may belong to another phase
   of the program. */
static void add_unseen(const mc_places *places, mc_place_set *set)
{
    for (int i = 0; i < places->n && set->n < MC_N_PLACES; i++) {
        const mc_candidate_place *row = &places->rows[i];
        if (!row->is_refused && row->thread_s > 0.0 && rate(row) < RATE_MIN && !is_near(set, &row->place, LINE_BYTES))
            set->places[set->n++] = row->place;
    }
}

/* 2 if the place was passed often in its trials, 1 if rarely, 0 if hardly ever. */
static int frequency(const mc_candidate_place *row)
{
    return (rate(row) >= RATE_MIN) + (rate(row) >= RATE_GOOD);
}

/* If both places are passed often, the cheaper one is better; otherwise, the one that is passed more often. */
static int is_better(const mc_candidate_place *row, const mc_candidate_place *best)
{
    if (!best || frequency(row) != frequency(best))
        return !best || frequency(row) > frequency(best);
    return rate(row) >= RATE_GOOD ? rate(row) < rate(best) : rate(row) > rate(best);
}

/* The best place near a sample; NULL: none can be counted within the cost limits. */
static const mc_candidate_place *best_around(const mc_places *places, const mc_place *sampled, double pass_ns,
                                             double left)
{
    const mc_candidate_place *best = NULL;
    for (int i = 0; i < places->n; i++) {
        const mc_candidate_place *row = &places->rows[i];
        double cost = rate(row) * pass_ns * 1e-9;
        if (!row->is_refused && row->thread_s > 0.0 && are_close(&row->place, sampled, BLOCK_BYTES) && cost <= left &&
            cost <= COST_OF_ONE_MAX && is_better(row, best))
            best = row;
    }
    return best;
}

/* Add one place for each block of code in which threads were sampled, the hottest first. */
static double add_spread(const mc_places *places, const mc_spots *spots, double pass_ns, double left, mc_place_set *set)
{
    for (int i = 0; i < spots->n && set->n < N_SPREAD; i++) {
        const mc_place sampled = {.offset = spots->rows[i].offset, .i_path = (uint64_t)spots->rows[i].i_path};
        const mc_candidate_place *best =
            is_near(set, &sampled, BLOCK_BYTES) ? NULL : best_around(places, &sampled, pass_ns, left);
        if (!best || is_near(set, &best->place, 1))
            continue;
        left -= rate(best) * pass_ns * 1e-9;
        set->places[set->n++] = best->place;
    }
    return left;
}

/* Copy to `set` the places of the present set that the program still passes. Returns the cost that remains for other
   places. */
static double keep(const mc_places *places, const mc_place_set *present, double pass_ns, mc_place_set *set)
{
    double left = COST_MAX;
    for (int i = 0; i < places->n && set->n < N_KEPT; i++) {
        const mc_candidate_place *row = &places->rows[i];
        double cost = rate(row) * pass_ns * 1e-9;
        if (row->is_refused || rate(row) < RATE_MIN || cost > left || cost > COST_OF_ONE_MAX ||
            !is_near(present, &row->place, 1))
            continue;
        left -= cost;
        set->places[set->n++] = row->place;
    }
    return left;
}

/* Cheap places in outer loops show the pace as well as expensive places in the innermost loop, but some loops have only
   expensive places. */
void mc_places_choose(const mc_places *places, const mc_spots *spots, const mc_place_set *present, double pass_ns,
                      mc_place_set *set)
{
    set->n = 0;
    double left = present ? keep(places, present, pass_ns, set) : COST_MAX;
    left = add_spread(places, spots, pass_ns, left, set);
    left = add_cheaper(places, pass_ns, 0.0, CHEAP_COST, left, set);
    add_cheaper(places, pass_ns, CHEAP_COST, COST_OF_ONE_MAX, left, set);
    add_unseen(places, set);
}

/* A loop has the same unit in all sets, because shutters with different sets are compared. */
uint64_t mc_places_known_unit(const mc_counts *counts, const mc_place *loop)
{
    for (uint64_t i = 0; i < counts->n_sets; i++)
        for (uint64_t j = mc_loops_first(&counts->sets[i]); j < counts->sets[i].n; j++) {
            const mc_place *place = &counts->sets[i].places[j];
            if (place->unit && place->i_path == loop->i_path && place->offset == loop->offset &&
                place->step == loop->step && place->reg == loop->reg)
                return place->unit;
        }
    return 0;
}

static int find_loop(const mc_spot *spot, mc_decoder *decoder, mc_program_files *files, const mc_counts *counts,
                     mc_place *found)
{
    surroundings around;
    mc_stepped_loop loop;
    read_around(&around, mc_context_begin(spot->offset), files, counts, spot);
    if (mc_loop_step(decoder, around.code, around.n, around.base, spot->offset, &loop) != MC_OK)
        return 0;
    *found = (mc_place){
        loop.begin, (uint64_t)spot->i_path, loop.n_bytes, loop.step, (uint64_t)mc_sampled_register(loop.reg), 0};
    found->unit = mc_places_known_unit(counts, found);
    return found->unit != MC_TELLS_NOTHING;
}

static int is_near_jump(const mc_place_set *set, const mc_place *place, uint64_t bytes)
{
    for (uint64_t i = 0; i < mc_loops_first(set); i++)
        if (are_close(&set->places[i], place, bytes))
            return 1;
    return 0;
}

int mc_places_are_near_jump(const mc_place_set *set, const mc_place *place)
{
    return is_near_jump(set, place, NEAR_BYTES);
}

static int is_in_loop(const mc_place_set *set, const mc_place *place)
{
    for (uint64_t i = mc_loops_first(set); i < set->n; i++)
        if (mc_loop_holds(&set->places[i], place->offset, place->i_path))
            return 1;
    return 0;
}

void mc_places_add_loops(mc_place_set *set, mc_decoder *decoder, mc_program_files *files, const mc_counts *counts,
                         const mc_spots *spots)
{
    int n_left = MC_N_LOOPS;
    for (int i = 0; i < spots->n && n_left && set->n < MC_N_PLACES; i++) {
        const mc_spot *spot = &spots->rows[i];
        const mc_place sampled = {.offset = spot->offset, .i_path = (uint64_t)spot->i_path};
        if ((double)spot->n < LOOP_FRAC * (double)spots->n_samples || is_near_jump(set, &sampled, BLOCK_BYTES) ||
            is_in_loop(set, &sampled))
            continue;
        if (find_loop(spot, decoder, files, counts, &set->places[set->n])) {
            set->n++;
            n_left--;
        }
    }
}

int mc_places_are_near(const mc_place_set *set, const mc_place *place)
{
    return is_near(set, place, NEAR_BYTES);
}

int mc_places_polls(mc_decoder *decoder, mc_program_files *files, const mc_counts *counts, int i_path, uint64_t offset)
{
    surroundings around;
    read_around(&around, mc_context_begin(offset), files, counts, &(mc_spot){offset, 1, i_path});
    return mc_polls(decoder, around.code, around.n, around.base, offset);
}

double mc_places_coverage(const mc_place_set *set, const mc_spots *spots)
{
    uint64_t n = 0, n_near = 0;
    for (int i = 0; i < spots->n; i++) {
        n += spots->rows[i].n;
        mc_place place = {.offset = spots->rows[i].offset, .i_path = (uint64_t)spots->rows[i].i_path};
        n_near += mc_places_are_near(set, &place) ? spots->rows[i].n : 0;
    }
    return n ? (double)n_near / (double)n : 0.0;
}

static int dearest(const mc_place_set *set, const double costs[])
{
    int i_most = 0;
    for (int i = 1; i < (int)set->n; i++)
        if (costs[i] > costs[i_most])
            i_most = i;
    return i_most;
}

/* Reduce the set until its cost is within the limit of a new set. If the reduced set only met the higher limit of a set
   in use, it could exceed that limit again in the next shutter. */
int mc_places_thin(const mc_place_set *set, const double costs[MC_N_PLACES], mc_place_set *rest)
{
    double left[MC_N_PLACES] = {0.0}, sum = 0.0;
    for (uint64_t i = 0; i < set->n; i++)
        sum += left[i] = costs[i];
    int i_most = dearest(set, left);
    if (!set->n || (sum <= COST_KEPT && left[i_most] <= COST_OF_ONE_KEPT))
        return 0;
    while (sum > COST_MAX || left[i_most] > COST_OF_ONE_KEPT) {
        sum -= left[i_most];
        left[i_most] = -1.0;
        i_most = dearest(set, left);
        if (left[i_most] < 0.0)
            break;
    }
    rest->n = 0;
    for (uint64_t i = 0; i < set->n; i++)
        if (left[i] >= 0.0)
            rest->places[rest->n++] = set->places[i];
    return 1;
}
