/* What could go wrong with the meter count: part of test_count.c, which includes it behind its lab. */
#ifndef MC_TEST_COUNT_SAFETY_H
#define MC_TEST_COUNT_SAFETY_H

static int is_patched(const lab *a)
{
    return mc_patching_is_patched(&a->ranks);
}

static void tell(int what)
{
    told->other = what;
    CHECK_SOON(!told->other, 20);
}

/* Nobody tells the rank any more to take its jumps back. It makes no MPI call. */
static void test_lease(lab *a)
{
    CHECK(insist(a, MC_PATCH_INSTALL));
    nap_ms(1500);
    CHECK(is_patched(a) && mc_patching_lasts(&a->ranks));
    CHECK(insist(a, MC_PATCH_REMOVE) && insist_once(a, MC_PATCH_INSTALL));
    WAIT_FOR(!is_patched(a), 20);
    CHECK(!is_patched(a) && !mc_patching_lasts(&a->ranks));
    CHECK(run_once(a) == 0);
    CHECK(insist(a, MC_PATCH_INSTALL));
    CHECK(run_once(a) == (uint64_t)a->n_threads * N_PASSES);
}

/* Its only thread sleeps, and sleeps no shorter for it. */
static void test_lease_asleep(lab *a)
{
    CHECK(insist_once(a, MC_PATCH_INSTALL));
    told->other = OTHER_SLEEP;
    CHECK_SOON(!is_patched(a), 20);
    WAIT_FOR(!told->other, 20);
}

static void test_lease_in_call(lab *a)
{
    CHECK(insist(a, MC_PATCH_INSTALL));
    tell(OTHER_CALL);
    a->ranks.rows[0].segment->counting.lease_until_ns = 1; /* the timer comes later */
    tell(OTHER_CALL);
    CHECK(!is_patched(a));
}

/* Rights cannot be changed for a while: the jumps stay, and count, until they can be taken back. */
static void test_kept(lab *a)
{
    CHECK(insist(a, MC_PATCH_INSTALL));
    tell(OTHER_FULL);
    WAIT_FOR(change(a, MC_PATCH_REMOVE) || a->ranks.rows[0].segment->counting.request == MC_PATCH_FAILED, 20);
    CHECK(a->ranks.rows[0].segment->counting.request == MC_PATCH_FAILED && is_patched(a));
    CHECK(run_once(a) == N_PASSES);
    a->ranks.rows[0].segment->counting.lease_until_ns = 1;
    nap_ms(1500); /* the timer has come */
    CHECK(is_patched(a) && !told->is_wrong);
    tell(OTHER_FREE);
    CHECK_SOON(!is_patched(a), 20);
    CHECK(run_once(a) == 0);
}

/* The program has mapped memory where stubs should be: they are made elsewhere. */
static void test_taken_page(lab *a)
{
    mc_counting *counting = &a->ranks.rows[0].segment->counting;
    told->address = counting->pages[0].address;
    tell(OTHER_MAP);
    WAIT_FOR(change(a, MC_PATCH_INSTALL) || counting->request == MC_PATCH_FAILED, 20);
    CHECK(counting->request == MC_PATCH_FAILED && !is_patched(a));
    CHECK(mc_stubs_make(&a->set, a->decoder, &a->files, a->counts, &a->ranks) == MC_OK);
    CHECK(counting->pages[0].address != told->address && insist(a, MC_PATCH_INSTALL));
    CHECK(run_once(a) == N_PASSES);
}

/* Time of standing still ends with the change, not when the agent looks. */
static void test_stopped(lab *a)
{
    const mc_segment *segment = a->ranks.rows[0].segment;
    int is_removed = 0;
    for (int i = 0; i < 20 && !is_removed; i++) {
        CHECK(insist(a, MC_PATCH_INSTALL));
        a->stopped_ns = 0;
        /* 0: the rank served an earlier request that had timed out. */
        is_removed = change(a, MC_PATCH_REMOVE) && a->stopped_ns;
    }
    CHECK(is_removed && a->stopped_ns == segment->counting.t_changed - segment->gate.t_first_enter);
}

static void test_differs(lab *a)
{
    mc_place_set set = a->set;
    tell(OTHER_CODE);
    CHECK(mc_stubs_make(&set, a->decoder, &a->files, a->counts, &a->ranks) != MC_OK && set.n == 0);
    tell(OTHER_CODE);
    set = a->set;
    CHECK(mc_stubs_make(&set, a->decoder, &a->files, a->counts, &a->ranks) == MC_OK && set.n == a->set.n);
}

/* Without Yama the kernel does not know the call. */
static void test_reader(lab *a)
{
    int64_t expected = prctl(PR_SET_PTRACER, getppid()) == 0 ? MC_READER_ALLOWED : -errno;
    CHECK(mc_patching_ask_to_read(&a->ranks) == MC_READER_UNKNOWN);
    WAIT_FOR(mc_patching_ask_to_read(&a->ranks) != MC_READER_UNKNOWN, 20);
    CHECK(mc_patching_ask_to_read(&a->ranks) == expected);
}

static void test_reader_taken(lab *a)
{
    tell(OTHER_READER);
    WAIT_FOR(mc_patching_ask_to_read(&a->ranks) != MC_READER_UNKNOWN, 20);
    CHECK(mc_patching_ask_to_read(&a->ranks) == MC_READER_TAKEN);
}

static mc_meter meter;

static mc_count_meter *open_meter(lab *a)
{
    mc_node *node = calloc(1, sizeof *node);
    node->counts.n_paths = 1;
    snprintf(node->counts.paths[0], MC_TEXT_LEN, "%s", a->counts->paths[0]);
    meter = (mc_meter){.ops = &mc_meter_count, .node = node, .ranks = &a->ranks};
    CHECK(mc_meter_count.open(&meter, mc_now_ns()));
    mc_count_meter *count = meter.state;
    count->decoder = mc_decoder_new();
    count->places = calloc(1, sizeof *count->places);
    count->spots = mc_spots_new();
    return count;
}

static void close_meter(void)
{
    mc_meter_close(&meter);
    free(meter.node);
}

static void step(uint64_t free_ns)
{
    int wake = 0;
    uint64_t now = mc_now_ns();
    mc_meter_step(&meter, 1, now + free_ns, now, &wake);
}

enum { SHORT_NS = 1000000, LONG_NS = 2000000000 };

static void step_and_rest(uint64_t free_ns)
{
    step(free_ns);
    nap_ms(10);
}

static int is_ready(void)
{
    return mc_meter_around_ns(&meter, 1, 1) > 0;
}

/* Another job's pause may be near. */
static void test_no_time(lab *a)
{
    mc_count_meter *count = open_meter(a);
    CHECK(insist(a, MC_PATCH_INSTALL));
    for (int i = 0; i < 20; i++)
        step_and_rest(SHORT_NS);
    CHECK(is_patched(a));
    for (int i = 0; i < 50 && is_patched(a); i++)
        step_and_rest(LONG_NS);
    CHECK(!is_patched(a));
    count->stage = MC_COUNT_SAMPLING;
    count->t_stage = mc_now_ns() - 4000000000u;
    step(SHORT_NS);
    CHECK(count->stage == MC_COUNT_SAMPLING);
    step(LONG_NS);
    CHECK(count->stage == MC_COUNT_TRYING);
    close_meter();
}

/* A thread writes still when the places are chosen. */
static void test_busy(lab *a)
{
    mc_count_meter *count = open_meter(a);
    uint32_t *request = &a->ranks.rows[0].segment->counting.request;
    count->stage = MC_COUNT_TRYING;
    count->places->n = 1;
    count->places->rows[0] = (mc_candidate_place){.place = a->set.places[0], .n_passes = 1e5, .thread_s = 1.0};
    *request = MC_PATCH_BUSY;
    step(LONG_NS);
    step(LONG_NS);
    CHECK(count->stage == MC_COUNT_TRYING && count->i_set < 0);
    *request = MC_PATCH_NONE;
    step(LONG_NS);
    CHECK(count->i_set == 0 && count->node->counts.n_sets == 1 && is_ready());
    close_meter();
}

/* Edges may be late by a sixteenth of a window, installing may take an eighth of the time before the shutter: a crowded
   machine needs long ones. */
enum { WINDOW_NS = 100000000, BEFORE_NS = MC_N_BEFORE_WINDOWS * WINDOW_NS };

static void measure(void)
{
    int wake = 0;
    mc_own_shutter *own = calloc(1, sizeof *own);
    uint64_t now = mc_now_ns(), t0 = now + BEFORE_NS + WINDOW_NS / 2, t1 = t0 + WINDOW_NS;
    own->reservation.t0 = t0;
    own->reservation.t1 = t1;
    own->record.t0 = t0;
    own->record.t1 = t1;
    own->is_open = 1;
    mc_meter_measure(&meter, own, BEFORE_NS, &wake);
    free(own);
}

/* Trials had found it rarely passed. */
static void test_hot(lab *a)
{
    mc_count_meter *count = open_meter(a);
    mc_counts *counts = &count->node->counts;
    counts->sets[0] = a->set;
    counts->n_sets = 1;
    count->i_set = 0;
    told->n_runs = 1 << 30;  /* it does nothing else */
    counts->pass_ns *= 20.0; /* hot as well where others leave its thread a part of a processor */
    for (int i = 0; i < 40 && !count->has_thinned; i++)
        measure();
    CHECK(count->has_thinned && count->is_dropped[0] && !is_ready());
    CHECK(counts->n_rows && counts->rows[counts->n_rows - 1].i_set == 0);
    for (int i = 0; i < 50 && count->has_thinned; i++)
        step_and_rest(LONG_NS);
    CHECK(counts->n_sets == 1 && count->i_set < 0); /* nothing is left of it */
    count->has_thinned = 1;
    count->thinned = a->set;
    for (int i = 0; i < 50 && count->has_thinned; i++)
        step_and_rest(LONG_NS);
    CHECK(counts->n_sets == 2 && count->i_set == 1);
    close_meter();
}

static void test_thin(void)
{
    mc_place_set set = {.n = 4, .places = {{10, 0}, {20, 0}, {30, 0}, {40, 0}}}, rest;
    double cheap[MC_N_PLACES] = {0.02, 0.02, 0.02, 0.015}, hot[MC_N_PLACES] = {0.01, 0.3, 0.01, 0.01},
           kept[MC_N_PLACES] = {0.08, 0.05, 0.02, 0.005}, many[MC_N_PLACES] = {0.07, 0.05, 0.04, 0.01},
           all[MC_N_PLACES] = {0.5, 0.5, 0.5, 0.5};
    CHECK(!mc_places_thin(&set, cheap, &rest) && !mc_places_thin(&set, kept, &rest));
    CHECK(mc_places_thin(&set, hot, &rest) && rest.n == 3 && rest.places[1].offset == 30);
    CHECK(mc_places_thin(&set, many, &rest) && rest.n == 2 && rest.places[0].offset == 30);
    CHECK(mc_places_thin(&set, all, &rest) && rest.n == 0);
}

/* Of one piece of code the cheapest place that each window passes many times; where there is none, the one passed most
   often. All were tried for a second; sampled is the first. */
static void check_first_choice(const double rates[3], uint64_t wanted)
{
    mc_places *places = calloc(1, sizeof *places);
    mc_spots *spots = mc_spots_new();
    mc_place_set set;
    places->n = 3;
    for (int i = 0; i < places->n; i++)
        places->rows[i] = (mc_candidate_place){
            .place.offset = 100 + 10 * (uint64_t)i, .n_samples = 5, .n_passes = rates[i], .thread_s = 1.0};
    spots->n = 1;
    spots->rows[0] = (mc_spot){100, 5, 0};
    mc_places_choose(places, spots, NULL, 1.0, &set);
    CHECK(set.n > 0 && set.places[0].offset == wanted);
    mc_spots_free(spots);
    free(places);
}

static void test_choice(void)
{
    const double often[3] = {3e6, 5e4, 600.0}, rarely[3] = {600.0, 3e3, 10.0}, hot[3] = {400e6, 250.0, 3e4},
                 unseen[3] = {400e6, 0.0, 10.0};
    check_first_choice(often, 110);
    check_first_choice(rarely, 110);
    check_first_choice(hot, 120);
    check_first_choice(unseen, 120);
}

/* The first file may be counted, the others not. */
static void test_exempt(int n, char **paths)
{
    for (int i = 0; i < n; i++) {
        mc_program_files *files = calloc(1, sizeof *files);
        mc_counts *counts = calloc(1, sizeof *counts);
        snprintf(counts->paths[0], MC_TEXT_LEN, "%s", paths[i]);
        CHECK((mc_program_file(files, counts, 0) != NULL) == (i == 0));
        mc_program_files_close(files);
        free(files);
        free(counts);
    }
}

#endif
