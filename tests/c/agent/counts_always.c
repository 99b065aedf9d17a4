/* The meter count for tests: code is changed nearly all the time, from the program's first tenths of a second on, without
   co-runners and shutters. Nothing is measured by it. It stands for csrc/agent/meters/count.c in a keeper of its own
   (tests/support/counting_keeper.py). COUNT_ALWAYS=change: jumps are there for some milliseconds, are taken back, and
   after some such turns other places get them. stay: they stay until nothing passes them any more. */
#define mc_meter_count mc_meter_of_product
#include "agent/meters/count.c"
#undef mc_meter_count

enum { N_INSTALLS_OF_SET = 4, N_FAILED_MAX = 50, N_SAMPLES_MIN = 10 };

static const uint64_t SAMPLE_NS = 100000000, SAMPLE_AGAIN_NS = 400000000, STEP_NS = 80000000, LEFT_NS = 12000000,
                      HOLD_MIN_NS = 200000, HOLD_MAX_NS = 8000000, LOOK_PASSES_NS = 20000000;

static struct {
    uint64_t random, n_changes;
    int n_sets, n_installs_left, n_idle, n_failed; /* installs of the present set; looks without a pass */
} always;

static int stays(void)
{
    const char *how = getenv("COUNT_ALWAYS");
    return how && strcmp(how, "stay") == 0;
}

static uint64_t draw(uint64_t n)
{
    always.random ^= always.random << 13;
    always.random ^= always.random >> 7;
    always.random ^= always.random << 17;
    return always.random % n;
}

static void say_progress(mc_count_meter *count)
{
    snprintf(count->node->meter_reason, sizeof count->node->meter_reason,
             "counted always: %llu changes of code, %llu passes, %d sets of places, %d changes failed",
             (unsigned long long)always.n_changes, (unsigned long long)count->node->counts.n_passes, always.n_sets,
             always.n_failed);
}

/* Threads are sampled all the time, so that places follow the program. */
static void sample(mc_count_meter *count, uint64_t now)
{
    uint64_t wait_ns = count->places->n ? SAMPLE_AGAIN_NS : SAMPLE_NS;
    if (count->stage == MC_COUNT_IDLE &&
        mc_spots_begin(count->spots, count->ranks, count->n_searches++, MC_SAMPLE_EVERY_NS, 0) == MC_OK) {
        enter_stage(count, MC_COUNT_SAMPLING, now); /* the agent then comes often */
    } else if (count->stage == MC_COUNT_SAMPLING && now >= count->t_stage + wait_ns &&
               mc_spots_n_taken(count->spots) >= N_SAMPLES_MIN) {
        mc_spots_end(count->spots, &count->node->counts);
        mc_places_find(count->places, count->decoder, &count->files, &count->node->counts, count->spots, NULL);
        enter_stage(count, MC_COUNT_IDLE, now);
    }
}

/* Some of the places, any of them. */
static void draw_set(mc_places *places, mc_place_set *set)
{
    uint64_t n_most = mc_min(MC_N_PLACES, (uint64_t)places->n), n_wanted = stays() ? n_most : 1 + draw(n_most);
    for (int i = 0; i < places->n; i++) {
        int j = i + (int)draw((uint64_t)(places->n - i));
        mc_candidate_place swapped = places->rows[i];
        places->rows[i] = places->rows[j];
        places->rows[j] = swapped;
    }
    set->n = 0;
    for (int i = 0; i < places->n && set->n < n_wanted; i++)
        if (!places->rows[i].is_refused)
            set->places[set->n++] = places->rows[i].place;
}

static int take_set(mc_count_meter *count)
{
    mc_place_set *set = &count->tried;
    draw_set(count->places, set);
    mc_place_set drawn = *set;
    int status = set->n ? make_stubs(count, set) : MC_E_GONE;
    if (drawn.n && status != MC_E_FULL)
        mc_places_refuse(count->places, &drawn, set);
    always.n_installs_left = status == MC_OK ? N_INSTALLS_OF_SET : 0;
    always.n_sets += status == MC_OK;
    return status == MC_OK;
}

static void change_always(mc_count_meter *count, uint32_t request, int *wake)
{
    int status = mc_patching_change(count->ranks, request, CHANGE_NS, &count->node->counts.stopped_ns, wake);
    always.n_changes += status == MC_OK;
    always.n_failed += status == MC_E_ARG;
}

/* Passes while the jumps are there for so long. */
static uint64_t hold(mc_count_meter *count, uint64_t hold_ns, int *wake)
{
    mc_snapshot *begin = &count->edges[0], *end = &count->edges[1];
    uint64_t sums[MC_N_PLACES];
    int status = mc_snapshot_take(begin, count->ranks);
    mc_patching_renew(count->ranks, mc_now_ns() + hold_ns);
    mc_sleep_until(mc_now_ns() + hold_ns, wake);
    if (status != MC_OK || mc_snapshot_take(end, count->ranks) != MC_OK)
        return 0;
    uint64_t n = mc_snapshot_between(begin, end, sums);
    count->node->counts.n_passes += n;
    return n;
}

static void change_and_hold(mc_count_meter *count, int *wake)
{
    int is_left = mc_patching_is_patched(count->ranks);
    if (!is_left) {
        if (always.n_installs_left == 0 && !take_set(count))
            return;
        always.n_installs_left--;
        change_always(count, MC_PATCH_INSTALL, wake);
    }
    if (stays()) {
        always.n_idle = hold(count, LOOK_PASSES_NS, wake) ? 0 : always.n_idle + 1;
        if (always.n_idle < N_INSTALLS_OF_SET)
            return;
        always.n_idle = always.n_installs_left = 0;
    } else if (!is_left) {
        hold(count, HOLD_MIN_NS + draw(HOLD_MAX_NS - HOLD_MIN_NS), wake);
    } else { /* a rank slept when it was asked to take them back, and may go on sleeping */
        mc_sleep_until(mc_now_ns() + HOLD_MIN_NS, wake);
    }
    change_always(count, MC_PATCH_REMOVE, wake);
}

static int step_always(mc_meter *meter, int has_shutters, uint64_t t_free, uint64_t now, int *wake)
{
    mc_count_meter *count = meter->state;
    (void)has_shutters;
    always.random = always.random ? always.random : now | 1;
    if (count->is_impossible || always.n_failed > N_FAILED_MAX || !prepare(count))
        return 0;
    sample(count, now);
    while (count->places->n && mc_now_ns() + LEFT_NS + 2 * CHANGE_NS < mc_min(now + STEP_NS, t_free) &&
           !__atomic_load_n(wake, __ATOMIC_ACQUIRE))
        change_and_hold(count, wake);
    say_progress(count);
    return 0;
}

const mc_meter_ops mc_meter_count = {
    .name = "count",
    .recorded_as = MC_METER_BURST,
    .open = open_count,
    .close = close_count,
    .step = step_always,
    .is_due = is_due,
    .search = search_state,
    .around_ns = around_ns,
    .cycle_ns = cycle_ns,
    .measure = measure,
};
