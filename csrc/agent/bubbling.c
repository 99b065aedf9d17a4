#define _GNU_SOURCE
#include "agent/bubbling.h"

#include "agent/bubble_cpus.h"
#include "agent/bubble_workers.h"
#include "agent/shutter/intervals.h"
#include "common/options.h"
#include "common/proc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_LEVEL = MC_BUBBLE_LEVEL_MAX, THOUSANDTHS = 1000 };

/* No neighbour slows the probe more: a co-runner that says so is not to be believed. */
static const double SLOWDOWN_MAX = 1000.0;

static const char NOT_YET[] = "no shutter had counts yet";
static const char NO_PROCESSORS[] =
    "there are not as many processors that the job may not use as the calibration had bubbles";
static const char CONFINED[] =
    "the kernel keeps bubbles off all other processors, so a co-runner has to press: run one with --bubble as well; it "
    "needs as many processors as the calibration had bubbles, all of them in this job's --bubble-cores";

/* What was drawn for a shutter of this job. */
typedef struct drawn {
    double level; /* 0: the probe */
    mc_wish wish;
    mc_bubble_times times;
    uint64_t i_turn; /* of the own threads */
} drawn;

struct mc_bubbling {
    mc_bubble_levels levels;
    mc_cpus online, cores; /* cores: where bubbles may run */
    double frac;
    uint64_t random;
    int n_workers;
    char *why; /* MC_TEXT_LEN bytes of the node file: why there are no bubbles */
    mc_bubble_workers *workers;
    drawn next, told;
    uint64_t i_served; /* turn of the own threads for another job */
};

/* ---- open and close ---- */

static void explain(char *why, const char *reason, const char *what)
{
    snprintf(why, MC_TEXT_LEN, "%s%.*s", reason, MC_TEXT_LEN / 2, what);
}

static int read_levels(mc_bubble_levels *levels, char *why)
{
    char path[MC_PATH_LEN];
    const char *named = mc_option_text(MC_OPT_BUBBLE_CALIBRATION);
    if (named)
        snprintf(path, sizeof path, "%s", named);
    else if (mc_bubble_calibration_path(path, sizeof path) != MC_BUBBLE_OK)
        path[0] = '\0';
    int status = mc_bubble_levels_read(levels, path);
    if (status == MC_BUBBLE_OK && levels->n_cpus && levels->n_cpus != (int)sysconf(_SC_NPROCESSORS_ONLN))
        status = MC_BUBBLE_E_MACHINE;
    if (status == MC_BUBBLE_OK)
        return 1;
    explain(why,
            status == MC_BUBBLE_E_FILE      ? "this machine is not calibrated, run `mpicoloc bubble calibrate`: no "
            : status == MC_BUBBLE_E_MACHINE ? "the calibration is of another machine: "
                                            : "this is no calibration of bubbles: ",
            path);
    return 0;
}

/* Each worker may be the probe, and has a share of each level. */
static uint64_t bytes_of_worker(const mc_bubble_levels *levels, int n)
{
    uint64_t n_bytes = levels->probe.working_set_bytes;
    for (int i = 0; i <= MAX_LEVEL; i++)
        n_bytes = mc_max(n_bytes, levels->at[i].working_set_bytes / (uint64_t)n);
    return n_bytes;
}

mc_bubbling *mc_bubbling_open(char *why, mc_probe_curve *curve)
{
    double frac = mc_option_number(MC_OPT_BUBBLE);
    mc_bubbling *all = frac > 0.0 ? calloc(1, sizeof *all) : NULL;
    if (!all)
        return NULL;
    if (!read_levels(&all->levels, why) || all->levels.n_bubbles > MC_N_BUBBLE_WORKERS) {
        if (!why[0])
            explain(why, "the calibration has more bubbles than there may be here", "");
        free(all);
        return NULL;
    }
    all->why = why;
    explain(why, NOT_YET, "");
    all->frac = frac;
    all->online = mc_cpus_of_machine();
    all->cores = mc_cpus_of_list(mc_option_text(MC_OPT_BUBBLE_CORES));
    all->random = mc_now_ns() * 0x9e3779b97f4a7c15u | 1; /* else jobs that begin at one time would draw the same */
    memcpy(curve->slowdown, all->levels.slowdown, sizeof curve->slowdown);
    memcpy(curve->low, all->levels.low, sizeof curve->low);
    memcpy(curve->high, all->levels.high, sizeof curve->high);
    all->n_workers = all->levels.n_bubbles > 0 ? all->levels.n_bubbles : 1;
    all->workers = mc_bubble_workers_open(all->n_workers, bytes_of_worker(&all->levels, all->n_workers));
    if (all->workers)
        return all;
    explain(why, "no thread can be started", "");
    free(all);
    return NULL;
}

void mc_bubbling_close(mc_bubbling *all)
{
    if (!all)
        return;
    mc_bubble_workers_close(all->workers);
    free(all);
}

double mc_bubbling_frac(const mc_bubbling *all)
{
    return all ? all->frac : 0.0;
}

/* ---- what runs, and where ---- */

static int is_ready(mc_bubbling *all)
{
    int ready = mc_bubble_workers_are_ready(all->workers);
    if (ready < 0)
        explain(all->why, "the node has not the memory for them", "");
    return ready > 0;
}

/* As own_shutter.c divides a shutter of one node. */
static mc_bubble_times times_of(const mc_reservation *shutter)
{
    uint64_t duration_ns = shutter->t1 - shutter->t0, settle_ns = mc_settle_ns(duration_ns);
    return (mc_bubble_times){
        .t0 = shutter->t0,
        .t_latest = shutter->t0 + settle_ns / 2, /* what is left is enough for it to fill the caches */
        .t_counted = shutter->t0 + settle_ns,
        .t_end = shutter->t1 - mc_margin_ns(duration_ns),
    };
}

/* A level takes all workers, the probe one. */
static uint64_t begin_turn(mc_bubbling *all, double level, const mc_bubble_times *times)
{
    mc_bubble_setting setting = all->levels.probe;
    if (level > 0.0)
        mc_bubble_setting_of(&setting, &all->levels, level, all->n_workers);
    return mc_bubble_workers_begin(all->workers, *times, setting, level > 0.0 ? all->n_workers : 1);
}

/* The first n have a processor already. Returns how many have one then. */
static int pin_to(const mc_bubbling *all, mc_cpus cpus, int n)
{
    for (int cpu = mc_cpus_next(&cpus, -1); cpu >= 0 && n < all->n_workers; cpu = mc_cpus_next(&cpus, cpu))
        n += mc_bubble_workers_pin(all->workers, n, cpu);
    return n;
}

/* ---- shutters of this job ---- */

/* xorshift64: in [0, 1). */
static double draw(mc_bubbling *all)
{
    uint64_t x = all->random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    all->random = x;
    return (double)(x >> 11) * 0x1p-53;
}

/* Number of the levels that the option names; the i-th of them, if there is one. */
static int wanted_levels(int i, double *level)
{
    const char *text = mc_option_text(MC_OPT_BUBBLE_LEVELS);
    char *end;
    int n = 0;
    for (double value; value = strtod(text, &end), end != text; text = end + (*end == ',')) {
        if (!(value > 0.0 && value <= MAX_LEVEL)) /* nor what is no number */
            continue;
        if (n++ == i)
            *level = value;
    }
    return n;
}

/* Each level as often as the probe, which is level 0. */
static double draw_level(mc_bubbling *all)
{
    int has_probe = all->levels.probe_lines_per_s > 0.0;
    int n = wanted_levels(-1, NULL), i = (int)(draw(all) * (n + has_probe));
    double level = 0.0;
    wanted_levels(i, &level);
    return level;
}

/* All of its processors must be among those that bubbles may use: it does not know which these are. */
static int can_press(const mc_bubbling *all, const mc_slot *other, mc_cpus own)
{
    mc_cpus theirs = mc_cpus_without(mc_cpus_of_slot(other), own), wrong = mc_cpus_without(theirs, all->cores);
    return __atomic_load_n(&other->n_bubbles, __ATOMIC_ACQUIRE) >= (uint64_t)all->n_workers &&
           mc_cpus_n(&theirs) >= all->n_workers && mc_cpus_n(&wrong) == 0;
}

/* Another one each time, as one of them may never be able to when it comes to it. */
static int ask_one(mc_bubbling *all, const mc_board_view *view, mc_cpus own)
{
    uint64_t owners[MC_N_SLOTS];
    int n = 0;
    for (int i = 0; i < view->n_live; i++)
        if (!mc_view_is_own(view, i) && can_press(all, mc_view_slot(view, i), own))
            owners[n++] = view->live[i].owner;
    if (n == 0)
        return 0;
    uint64_t thousandths = (uint64_t)(all->next.level * THOUSANDTHS + 0.5);
    if (all->next.level > 0.0) /* 0 would be the probe */
        thousandths = mc_max(thousandths, 1);
    all->next.level = (double)thousandths / THOUSANDTHS;
    all->next.wish = (mc_wish){owners[(int)(draw(all) * n)], thousandths};
    return 1;
}

/* Processors of co-runners first, since these stand still: on one that no job claims, there may be a program that knows
   nothing of us. Fewer than all workers would press less than the level says. */
static int find_processors(mc_bubbling *all, const mc_board_view *view)
{
    mc_cpus own = mc_cpus_of_slot(view->slot), others = {{0}};
    for (int i = 0; i < view->n_live; i++)
        if (!mc_view_is_own(view, i))
            others = mc_cpus_or(others, mc_cpus_of_slot(mc_view_slot(view, i)));
    mc_cpus may = mc_cpus_without(mc_cpus_and(all->online, all->cores), own);
    int n = pin_to(all, mc_cpus_and(may, others), 0);
    if (pin_to(all, mc_cpus_without(may, others), n) == all->n_workers || ask_one(all, view, own))
        return 1;
    if (!all->told.times.t0) /* else some have run, and a co-runner that helped has gone */
        explain(all->why, mc_cpus_n(&may) < all->n_workers ? NO_PROCESSORS : CONFINED, "");
    return 0;
}

int mc_bubbling_draw(mc_bubbling *all, const mc_board_view *view)
{
    if (!all || draw(all) >= all->frac || !is_ready(all))
        return 0;
    all->next = (drawn){.level = draw_level(all)};
    return find_processors(all, view);
}

mc_wish mc_bubbling_wish(const mc_bubbling *all)
{
    return all->next.wish;
}

void mc_bubbling_begin(mc_bubbling *all, const mc_reservation *shutter)
{
    all->why[0] = '\0';
    all->told = all->next;
    all->told.times = times_of(shutter);
    if (!all->told.wish.owner)
        all->told.i_turn = begin_turn(all, all->told.level, &all->told.times);
}

int mc_bubbling_was_told(const mc_bubbling *all, uint64_t t0)
{
    return all && all->told.times.t0 == t0;
}

/* Anybody can write an acknowledgement: what cannot be is not believed. */
static int has_other_pressed(const mc_ack *ack, const mc_bubble_times *times, mc_bubble_work *work)
{
    if (!ack || ack->has_pressed != 1)
        return 0;
    *work = (mc_bubble_work){ack->n_lines, ack->press_cpu_ns};
    return work->cpu_ns <= times->t_end - times->t0 && mc_bubble_had_processor(times, work->cpu_ns);
}

void mc_bubbling_result(const mc_bubbling *all, const mc_ack *ack, double *level, double *probe_slowdown)
{
    const drawn *told = &all->told;
    mc_bubble_work work = {0, 0};
    *level = *probe_slowdown = 0.0;
    if (!(told->wish.owner ? has_other_pressed(ack, &told->times, &work)
                           : mc_bubble_workers_have_pressed(all->workers, told->i_turn, &work)))
        return;
    *level = told->level;
    if (*level > 0.0 || work.n_lines == 0)
        return;
    double slowdown = all->levels.probe_lines_per_s * (double)work.cpu_ns * 1e-9 / (double)work.n_lines;
    if (slowdown <= SLOWDOWN_MAX)
        *probe_slowdown = slowdown;
}

/* ---- shutters of others ---- */

static mc_cpus cpus_for_others(const mc_bubbling *all, const mc_job_ranks *ranks)
{
    return mc_cpus_and(mc_cpus_of_ranks(ranks), all->cores);
}

uint64_t mc_bubbling_offer(mc_bubbling *all, const mc_job_ranks *ranks)
{
    if (!all || !is_ready(all))
        return 0;
    mc_cpus cpus = cpus_for_others(all, ranks);
    return mc_cpus_n(&cpus) >= all->n_workers ? (uint64_t)all->n_workers : 0;
}

/* On processors that the other job may use as well it would press inside that job. */
int mc_bubbling_serve(mc_bubbling *all, const mc_reservation *shutter, const mc_board_view *view, int i_live,
                      const mc_job_ranks *ranks)
{
    uint64_t thousandths = shutter->wish.level_thousandths;
    if (!all || shutter->wish.owner != view->owner || thousandths > MAX_LEVEL * THOUSANDTHS || !is_ready(all))
        return 0;
    double level = (double)thousandths / THOUSANDTHS;
    mc_cpus cpus = mc_cpus_without(cpus_for_others(all, ranks), mc_cpus_of_slot(mc_view_slot(view, i_live)));
    if (pin_to(all, cpus, 0) < (level > 0.0 ? all->n_workers : 1))
        return 0;
    mc_bubble_times times = times_of(shutter);
    all->i_served = begin_turn(all, level, &times);
    return all->i_served != 0;
}

void mc_bubbling_await(const mc_bubbling *all, const mc_reservation *shutter, int *wake)
{
    mc_bubble_workers_await(all->workers, shutter->t1 - mc_margin_ns(shutter->t1 - shutter->t0) / 2, wake);
}

void mc_bubbling_answer(const mc_bubbling *all, const mc_reservation *shutter, mc_ack *ack, int *wake)
{
    mc_bubble_work work = {0, 0};
    mc_bubble_workers_await(all->workers, shutter->t1, wake);
    ack->has_pressed = (uint64_t)mc_bubble_workers_have_pressed(all->workers, all->i_served, &work);
    ack->n_lines = work.n_lines;
    ack->press_cpu_ns = work.cpu_ns;
}
