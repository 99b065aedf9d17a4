/* A job asks the agent of another one to press in its shutters. The other is a make-believe job with an agent of its own; the
   test stands in for the agent of the one that asks. Run in a folder of its own. Exit code: number of failed checks. */
#define _GNU_SOURCE
#include "../support/calibration.h"
#include "../support/free_processors.h"
#include "../support/node.h"

#include <sched.h>

enum { CANNOT = 77 };

static const uint64_t MS = 1000000u, PERIOD_NS = 50000000u;
/* Bubbles take only what nobody else wants of a processor: on a busy machine that is little. */
static const uint64_t PATIENCE_NS = 22000000000u;

typedef struct asker {
    mc_board *board;
    mc_slot *slot;
    uint64_t owner;
} asker;

static asker join(void)
{
    asker own = {0};
    mc_proc_stat self;
    CHECK(mc_board_open(&own.board) == MC_OK && mc_proc_read_stat(&self, getpid()) == MC_OK);
    own.owner = mc_board_owner(getpid(), self.start_ticks);
    CHECK(mc_board_claim(own.board, own.owner, "asker", &own.slot) == MC_OK);
    own.slot->n_ranks = 1;
    own.slot->t_joined = 1; /* no newcomer */
    return own;
}

static void leave(const asker *own)
{
    mc_board_release(own->board, own->slot);
    mc_board_unmap(own->board);
    mc_board_remove_if_empty();
}

static void finish(const asker *own, test_job *other)
{
    leave(own);
    finish_job(other);
}

static mc_slot *find_slot(const asker *own, pid_t agent)
{
    for (int i = 0; i < MC_N_SLOTS; i++)
        if (own->board->slots[i].owner >> 32 == (uint64_t)agent)
            return &own->board->slots[i];
    return NULL;
}

/* The agent may take a while to come to the board. */
static mc_slot *slot_of(const asker *own, pid_t agent)
{
    mc_slot *found = NULL;
    CHECK_SOON((found = find_slot(own, agent)) != NULL, 20);
    if (!found)
        exit(n_failed);
    return found;
}

/* Reserve the next instant, and wait for its end. MC_OK: the other job has acknowledged; else it was its own instant, or it
   came too late to see the reservation. */
static int ask(const asker *own, mc_slot *other, mc_press_request request, uint64_t duration_ns, mc_ack *ack)
{
    mc_neighbour live[MC_N_SLOTS];
    uint64_t now = mc_now_ns();
    int never = 0, n = mc_board_live(own->board, now, live);
    uint64_t period_ns = mc_board_period(own->board, live, n, PERIOD_NS), i = now / period_ns, t0;
    while ((t0 = mc_instant_ns(i, period_ns)) < now + 15 * MS)
        i++;
    __atomic_store_n(&own->slot->heartbeat, now, __ATOMIC_RELEASE);
    mc_slot_reserve(own->slot, &(mc_reservation){t0, t0, t0 + duration_ns, 0, request});
    mc_sleep_until(t0 + duration_ns + 5 * MS, &never);
    return mc_slot_ack(other, t0, ack);
}

static mc_press_request request_to(const asker *own, const mc_slot *slot, uint64_t thousandths)
{
    return request_of((int)(slot - own->board->slots), thousandths);
}

static uint64_t deadline(void)
{
    return mc_now_ns() + PATIENCE_NS;
}

/* 0: others had the processors all the time. */
static int has_pressed(const asker *own, mc_slot *other, uint64_t thousandths)
{
    mc_ack ack = {0};
    for (uint64_t end = deadline(); !ack.has_pressed && mc_now_ns() < end;)
        if (ask(own, other, request_to(own, other, thousandths), 6 * MS, &ack) != MC_OK)
            ack.has_pressed = 0;
    if (ack.has_pressed)
        CHECK(ack.has_pressed == 1 && ack.n_lines > 0 && ack.press_cpu_ns > 3 * MS && ack.press_cpu_ns < 6 * MS);
    return ack.has_pressed != 0;
}

/* After the jobs have ended. */
static void check_pressed(int is_so)
{
    int percent = is_so ? 100 : free_percent();
    CHECK(is_so || percent < 90);
    if (is_so || n_failed)
        return;
    fprintf(stderr, "others have the processors: %d %% of the first one are free\n", percent);
    unlink(CALIBRATION);
    exit(CANNOT);
}

/* It stands still for us, and does not press. */
static void check_not_pressed(const asker *own, mc_slot *other, mc_press_request request)
{
    mc_ack ack = {0};
    int n = 0;
    for (uint64_t end = deadline(); n < 2 && mc_now_ns() < end;) {
        if (ask(own, other, request, 12 * MS, &ack) != MC_OK)
            continue;
        CHECK(ack.has_pressed == 0 && ack.n_lines == 0 && ack.press_cpu_ns == 0);
        n++;
    }
    CHECK(n == 2);
}

static void test_agent_presses_on_request(void)
{
    test_job other = start_job("o", 1);
    asker own = join();
    mc_slot *slot = slot_of(&own, other.agent);
    CHECK_SOON(slot->offer.n == 1, 20);
    int is_so = has_pressed(&own, slot, 8000) && has_pressed(&own, slot, 500) && has_pressed(&own, slot, 0);
    leave(&own);
    end_job(&other);
    print_job(&other);
    CHECK(other.segments[0]->counters.n_pauses > 0);
    forget_job(&other);
    check_pressed(is_so);
}

/* From here on this process and its children may use one processor, the i-th of those that there are. */
static int bind_to(const cpu_set_t *all, int i)
{
    cpu_set_t one;
    int cpu = -1;
    do
        cpu++;
    while (cpu < CPU_SETSIZE && !(CPU_ISSET(cpu, all) && i-- == 0));
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    return cpu < CPU_SETSIZE && sched_setaffinity(0, sizeof one, &one) == 0;
}

/* Two jobs with a processor each, for a level of two bubbles. */
static void test_two_agents_press_together(void)
{
    cpu_set_t all;
    sched_getaffinity(0, sizeof all, &all);
    if (CPU_COUNT(&all) < 2)
        exit(CANNOT);
    calibrate_with(sysconf(_SC_NPROCESSORS_ONLN), 2, 2.0);
    CHECK(bind_to(&all, 0));
    test_job a = start_job("a", 1);
    CHECK(bind_to(&all, 1));
    test_job b = start_job("b", 1);
    sched_setaffinity(0, sizeof all, &all);
    asker own = join();
    mc_slot *of_a = slot_of(&own, a.agent), *of_b = slot_of(&own, b.agent);
    CHECK_SOON(of_a->offer.n == 1 && of_b->offer.n == 1, 20);
    mc_press_request request = request_to(&own, of_a, 8000);
    mc_press_ask(&request, (int)(of_b - own.board->slots), 1);
    mc_ack ack_a = {0}, ack_b = {0};
    for (uint64_t end = deadline(); !(ack_a.has_pressed && ack_b.has_pressed) && mc_now_ns() < end;)
        if (ask(&own, of_a, request, 6 * MS, &ack_a) != MC_OK ||
            mc_slot_ack(of_b, own.slot->reservation.epoch, &ack_b) != MC_OK)
            ack_a.has_pressed = ack_b.has_pressed = 0;
    int is_so = ack_a.has_pressed && ack_b.has_pressed;
    CHECK(!is_so || (ack_a.n_lines > 0 && ack_b.n_lines > 0));
    leave(&own);
    finish_job(&a);
    finish_job(&b);
    check_pressed(is_so);
    calibrate(sysconf(_SC_NPROCESSORS_ONLN), 2.0);
}

static void test_invalid_requests_are_ignored(void)
{
    test_job other = start_job("o", 1);
    asker own = join();
    mc_slot *slot = slot_of(&own, other.agent);
    WAIT_FOR(slot->offer.n, 20);
    check_not_pressed(&own, slot, (mc_press_request){.level_thousandths = 8000});
    check_not_pressed(&own, slot, request_to(&own, own.slot, 8000));
    check_not_pressed(&own, slot, request_to(&own, slot, 8001));
    check_not_pressed(&own, slot, request_to(&own, slot, UINT64_MAX));
    memset(own.slot->cpu_mask, 0xff, sizeof own.slot->cpu_mask); /* its processors are ours, too */
    check_not_pressed(&own, slot, request_to(&own, slot, 8000));
    finish(&own, &other);
}

/* A shutter longer than it allows: it refuses, and does not press. */
static void test_it_does_not_press_where_it_does_not_stand_still(void)
{
    test_job other = start_job("o", 1);
    asker own = join();
    mc_slot *slot = slot_of(&own, other.agent);
    mc_ack ack;
    WAIT_FOR(slot->offer.n, 20);
    uint64_t n_pauses = other.node->n_pauses;
    double before_s = cpu_s(other.agent);
    for (uint64_t end = deadline(); other.node->n_refused < 3 && mc_now_ns() < end;)
        CHECK(ask(&own, slot, request_to(&own, slot, 8000), 600 * MS, &ack) != MC_OK);
    CHECK(other.node->n_refused >= 3 && other.node->n_pauses == n_pauses);
    CHECK(cpu_s(other.agent) - before_s < 1.0); /* three of them are 1.8 s */
    finish(&own, &other);
}

static void test_it_offers_nothing_without_the_option(void)
{
    unsetenv("MPICOLOC_BUBBLE");
    test_job other = start_job("o", 1);
    asker own = join();
    mc_slot *slot = slot_of(&own, other.agent);
    check_not_pressed(&own, slot, request_to(&own, slot, 8000));
    CHECK(slot->offer.n == 0);
    finish(&own, &other);
    setenv("MPICOLOC_BUBBLE", "0.9", 1);
}

/* Killed while it presses: its threads end with it, and its rank goes on. */
static void test_an_agent_that_is_killed_leaves_no_bubble(void)
{
    test_job other = start_job("o", 1);
    asker own = join();
    mc_slot *slot = slot_of(&own, other.agent);
    WAIT_FOR(slot->offer.n, 20);
    uint64_t n_pauses = other.node->n_pauses;
    pid_t asking = child();
    if (asking == 0) {
        mc_ack ack;
        for (;;)
            (void)ask(&own, slot, request_to(&own, slot, 8000), 80 * MS, &ack);
    }
    for (uint64_t end = deadline(); other.node->n_pauses == n_pauses && mc_now_ns() < end;)
        nap_ms(1);
    CHECK(other.node->n_pauses > n_pauses);
    pid_t agent = other.agent;
    kill_agent(&other);
    CHECK(cpu_s(agent) < 0.0);
    end_process(asking, SIGKILL);
    nap_ms(100);
    check_that_it_runs(&other);
    finish(&own, &other);
}

static const named_test tests[] = {
    {"pressing", test_agent_presses_on_request},
    {"together", test_two_agents_press_together},
    {"not_asked", test_invalid_requests_are_ignored},
    {"refusing", test_it_does_not_press_where_it_does_not_stand_still},
    {"no_offer", test_it_offers_nothing_without_the_option},
    {"killed", test_an_agent_that_is_killed_leaves_no_bubble},
};

int main(int argc, char **argv)
{
    calibrate(sysconf(_SC_NPROCESSORS_ONLN), 2.0);
    setenv("MPICOLOC_METER", "burst", 1);
    setenv("MPICOLOC_SHUTTER_PERIOD_S", "0.05", 1);
    setenv("MPICOLOC_SHUTTER_DUTY_FRAC", "0.5", 1);
    alarm(80);
    run_named(tests, sizeof tests / sizeof *tests, argc > 1 ? argv[1] : NULL);
    unlink(CALIBRATION);
    return n_failed;
}
