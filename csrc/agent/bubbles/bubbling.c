#define _GNU_SOURCE
#include "agent/bubbles/bubbling.h"

#include "agent/bubbles/bubble_workers.h"
#include "agent/shutter/intervals.h"
#include "common/options.h"
#include "common/proc.h"
#include "common/words.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_LEVEL = MC_BUBBLE_LEVEL_MAX, THOUSANDTHS = 1000 };

/* Largest possible slowdown of the probe by a neighbour. If a co-runner reports a larger value, it is discarded. */
static const double SLOWDOWN_MAX = 1000.0;

static const char NOT_YET[] = "no shutter had counts yet";
static const char NO_PROCESSORS[] = "there are not as many processors outside the job as the calibration had bubbles";
static const char CONFINED[] =
    "the kernel keeps bubbles off all other processors, so co-runners must run them: start those jobs "
    "with --bubble as well; together they need as many processors as the calibration had bubbles, "
    "all of them in this job's --bubble-cores";

static const char NO_COORDINATORS[] =
    "bubbles of a job on several nodes need its coordinators on all of them: start it by `mpicoloc run` or `wrap`";
static const char LITTLE_MEMORY[] =
    "bubbles would take more than half of the memory that was free when the job began: request more (--mem)";

/* Bubbles that co-runners are asked to run in a shutter of this job, and the processors for them. */
typedef struct press_wanted {
    int n, n_level;       /* number of bubbles wanted in the shutter; number of bubbles that make up a level */
    cpu_set_t own, cores; /* processors of this job; processors that bubbles can use */
} press_wanted;

#define LOAD(field) __atomic_load_n(&(field), __ATOMIC_ACQUIRE)

/* ---- sets of processors ---- */

static cpu_set_t cpus_of_slot(const mc_slot *slot)
{
    cpu_set_t cpus;
    mc_words_load(&cpus, slot->cpu_mask, sizeof cpus);
    return cpus;
}

/* Processors in a list such as 0-3,8; all possible processors if there is no list. */
static cpu_set_t cpus_of_list(const char *list)
{
    cpu_set_t cpus;
    int is_named = list && *list;
    memset(&cpus, is_named ? 0 : 0xff, sizeof cpus);
    for (int i = 0; is_named && i < CPU_SETSIZE; i++) { /* mc_bubble_cpu_of starts over at the end of the list */
        int cpu = mc_bubble_cpu_of(list, i);
        if (cpu >= 0)
            CPU_SET(cpu, &cpus);
    }
    return cpus;
}

/* Processors that are online; all possible processors if that is unknown. */
static cpu_set_t cpus_of_machine(void)
{
    char online[512];
    mc_proc_read_text("/sys/devices/system/cpu/online", online, sizeof online);
    online[strcspn(online, "\n")] = '\0';
    return cpus_of_list(online);
}

static cpu_set_t either(cpu_set_t a, cpu_set_t b)
{
    CPU_OR(&a, &a, &b);
    return a;
}

static cpu_set_t both(cpu_set_t a, cpu_set_t b)
{
    CPU_AND(&a, &a, &b);
    return a;
}

static cpu_set_t without(cpu_set_t a, cpu_set_t b)
{
    cpu_set_t common = both(a, b);
    CPU_XOR(&a, &a, &common);
    return a;
}

/* ---- choice of the co-runners that run bubbles ---- */

/* Number of bubbles that a co-runner can run, at most the number wanted. Bubbles must be allowed on all processors of
   the co-runner, because it does not know on which processors they are allowed. */
static int n_can_press(const mc_slot *other, const press_wanted *wanted, const cpu_set_t *taken)
{
    cpu_set_t theirs = without(cpus_of_slot(other), wanted->own);
    cpu_set_t wrong = without(theirs, wanted->cores), common = both(theirs, *taken);
    if (LOAD(other->offer.n_all) != (uint64_t)wanted->n_level || CPU_COUNT(&wrong) || CPU_COUNT(&common))
        return 0;
    return (int)mc_min(mc_min(LOAD(other->offer.n), (uint64_t)CPU_COUNT(&theirs)), (uint64_t)wanted->n);
}

/* Ask co-runners to run bubbles, beginning with live job `first`. Only co-runners that can run at least `at_least`
   bubbles are asked. Of two co-runners that share a processor, only one is asked, because their bubbles would disturb
   each other. */
static int share_out_from(mc_press_request *request, const mc_board_view *view, const press_wanted *wanted, int first,
                          int at_least)
{
    cpu_set_t taken;
    CPU_ZERO(&taken);
    for (int k = 0; k < view->n_live && request->n_bubbles < (uint64_t)wanted->n; k++) {
        int i = (first + k) % view->n_live;
        int n = mc_view_is_own(view, i) ? 0 : n_can_press(mc_view_slot(view, i), wanted, &taken);
        if (n < at_least)
            continue;
        mc_press_ask(request, view->live[i].i_slot, (int)mc_min((uint64_t)n, (uint64_t)wanted->n - request->n_bubbles));
        taken = either(taken, cpus_of_slot(mc_view_slot(view, i)));
    }
    return request->n_bubbles == (uint64_t)wanted->n;
}

/* Ask one co-runner that can run all bubbles or, if there is none, several together. A random number `random` in [0, 1)
   varies the choice, because a co-runner may offer bubbles but never manage to run them. If all co-runners together
   cannot run the bubbles, this function asks none of them and returns 0. */
static int share_out(mc_press_request *request, const mc_board_view *view, const press_wanted *wanted, double random)
{
    const mc_press_request nobody = {.level_thousandths = request->level_thousandths};
    int first = (int)(random * view->n_live);
    *request = nobody;
    if (share_out_from(request, view, wanted, first,
                       wanted->n)) /* prefer one: if any of several fails, the bubble is spoilt */
        return 1;
    *request = nobody;
    if (share_out_from(request, view, wanted, first, 1))
        return 1;
    *request = nobody;
    return 0;
}

/* The bubble or probe that was drawn for a shutter of this job. */
typedef struct drawn {
    double level; /* 0: the probe */
    mc_press_request request;
    uint64_t t0; /* start of the shutter; 0: nothing was started yet */
    mc_bubble_times times;
    uint64_t i_turn; /* number of the turn in which this process's workers run it */
} drawn;

struct mc_bubbling {
    mc_bubble_levels levels;
    cpu_set_t online, cores; /* cores: where bubbles may run */
    double frac;
    uint64_t random;
    int n_workers;
    char *why; /* reason for having no bubbles: MC_TEXT_LEN bytes of the node file */
    mc_bubble_workers *workers;
    drawn next, told;
    uint64_t i_served; /* number of the turn in which the workers run bubbles for another job */
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
            status == MC_BUBBLE_E_FILE      ? "this machine is not calibrated (run `mpicoloc bubble calibrate`): no "
            : status == MC_BUBBLE_E_MACHINE ? "the calibration is of another machine: "
                                            : "not a calibration of bubbles: ",
            path);
    return 0;
}

/* Largest working set that one of n bubbles needs, over all levels. */
static uint64_t largest_share_bytes(const mc_bubble_levels *levels, int n)
{
    uint64_t n_bytes = 0;
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
            explain(why, "the calibration has more bubbles than a job can run", "");
        free(all);
        return NULL;
    }
    all->why = why;
    explain(why, NOT_YET, "");
    all->frac = frac;
    all->online = cpus_of_machine();
    all->cores = cpus_of_list(mc_option_text(MC_OPT_BUBBLE_CORES));
    all->random = mc_now_ns() * 0x9e3779b97f4a7c15u | 1; /* otherwise jobs that start together draw the same levels */
    memcpy(curve->slowdown, all->levels.slowdown, sizeof curve->slowdown);
    memcpy(curve->low, all->levels.low, sizeof curve->low);
    memcpy(curve->high, all->levels.high, sizeof curve->high);
    all->n_workers = all->levels.n_bubbles > 0 ? all->levels.n_bubbles : 1;
    uint64_t share_bytes = largest_share_bytes(&all->levels, all->n_workers);
    all->workers =
        mc_bubble_workers_open(all->n_workers, mc_max(share_bytes, all->levels.probe.working_set_bytes), share_bytes);
    if (all->workers)
        return all;
    explain(why, "the threads of bubbles cannot be started", "");
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

void mc_bubbling_lacks_coordinators(mc_bubbling *all, int lacks)
{
    if (!all)
        return;
    if (lacks)
        explain(all->why, NO_COORDINATORS, "");
    else if (strcmp(all->why, NO_COORDINATORS) == 0)
        explain(all->why, NOT_YET, "");
}

/* ---- bubbles and their processors ---- */

static int is_ready(mc_bubbling *all)
{
    int ready = mc_bubble_workers_are_ready(all->workers);
    if (ready < 0)
        explain(all->why, LITTLE_MEMORY, "");
    return ready > 0;
}

/* Times of the bubbles in a shutter. The shutter is divided as own_shutter.c divides a shutter on one node. */
static mc_bubble_times times_of(const mc_reservation *shutter)
{
    uint64_t duration_ns = shutter->t1 - shutter->t0, settle_ns = mc_settle_ns(duration_ns);
    return (mc_bubble_times){
        .t0 = shutter->t0 + mc_guard_ns(duration_ns), /* co-runners are paused by then, or the shutter is not valid */
        .t_latest = shutter->t0 + settle_ns / 2,      /* the rest of the settling time suffices to fill the caches */
        .t_counted = shutter->t0 + settle_ns,
        .t_end = shutter->t1 - mc_margin_ns(duration_ns),
    };
}

/* Number of workers that run: all for a level, one for the probe. */
static int n_bubbles_of(const mc_bubbling *all, double level)
{
    return level > 0.0 ? all->n_workers : 1;
}

/* Start the first n workers, each with its share of the level. With level 0, start the probe. */
static uint64_t start_bubbles(mc_bubbling *all, double level, int n, const mc_bubble_times *times)
{
    mc_bubble_setting setting = all->levels.probe;
    if (level > 0.0)
        mc_bubble_setting_of(&setting, &all->levels, level, all->n_workers);
    return mc_bubble_workers_begin(all->workers, *times, setting, n);
}

/* Pin workers to `cpus`. The first n workers are pinned already. Returns the number of workers pinned, n included. */
static int pin_to(const mc_bubbling *all, cpu_set_t cpus, int n)
{
    for (int cpu = 0; cpu < CPU_SETSIZE && n < all->n_workers; cpu++)
        n += CPU_ISSET(cpu, &cpus) && mc_bubble_workers_pin(all->workers, n, cpu);
    return n;
}

/* ---- shutters of this job ---- */

/* Uniform random number in [0, 1), generated by xorshift64. */
static double draw(mc_bubbling *all)
{
    uint64_t x = all->random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    all->random = x;
    return (double)(x >> 11) * 0x1p-53;
}

/* Number of levels in the option. Sets *level to the i-th level if it exists. */
static int wanted_levels(int i, double *level)
{
    const char *text = mc_option_text(MC_OPT_BUBBLE_LEVELS);
    char *end;
    int n = 0;
    for (double value; value = strtod(text, &end), end != text; text = end + (*end == ',')) {
        if (!(value > 0.0 && value <= MAX_LEVEL)) /* excludes NaN too */
            continue;
        if (n++ == i)
            *level = value;
    }
    return n;
}

/* Draw a level, or 0 for the probe, each with the same probability. */
static double draw_level(mc_bubbling *all)
{
    int has_probe = all->levels.probe_lines_per_s > 0.0;
    int n = wanted_levels(-1, NULL), i = (int)(draw(all) * (n + has_probe));
    double level = 0.0;
    wanted_levels(i, &level);
    return level;
}

static uint64_t thousandths_of(double level)
{
    uint64_t thousandths = (uint64_t)(level * THOUSANDTHS + 0.5);
    return level > 0.0 ? mc_max(thousandths, 1) : 0; /* 0 is the probe */
}

/* Ask co-runners to run the drawn level or probe. Returns 0 if they cannot run all bubbles of the level. */
static int ask_others(mc_bubbling *all, const mc_board_view *view, cpu_set_t own)
{
    double level = all->next.level;
    press_wanted wanted = {n_bubbles_of(all, level), all->n_workers, own, all->cores};
    uint64_t thousandths = thousandths_of(level);
    all->next.level = (double)thousandths / THOUSANDTHS;
    all->next.request = (mc_press_request){.level_thousandths = thousandths};
    return share_out(&all->next.request, view, &wanted, draw(all));
}

/* Pin all workers, or else ask co-runners to run the bubbles. Fewer workers would cause less pressure than the level
   stands for. Processors of paused co-runners come first, because programs without mpicoloc may run on processors that
   no job claims. */
static int find_processors(mc_bubbling *all, const mc_board_view *view)
{
    cpu_set_t own = cpus_of_slot(view->slot), others;
    CPU_ZERO(&others);
    for (int i = 0; i < view->n_live; i++)
        if (!mc_view_is_own(view, i))
            others = either(others, cpus_of_slot(mc_view_slot(view, i)));
    cpu_set_t may = without(both(all->online, all->cores), own);
    int n = pin_to(all, both(may, others), 0);
    if (pin_to(all, without(may, others), n) == all->n_workers || ask_others(all, view, own))
        return 1;
    if (!all->told.t0) /* if t0 is set, bubbles have run before, and a co-runner that ran them has left */
        explain(all->why, CPU_COUNT(&may) < all->n_workers ? NO_PROCESSORS : CONFINED, "");
    return 0;
}

int mc_bubbling_draw(mc_bubbling *all, const mc_board_view *view)
{
    if (!all || draw(all) >= all->frac || !is_ready(all))
        return 0;
    all->next = (drawn){.level = draw_level(all)};
    return find_processors(all, view);
}

uint64_t mc_bubbling_draw_for_all(mc_bubbling *all, uint64_t *is_wanted)
{
    *is_wanted = 0;
    if (!all || !is_ready(all))
        return 0;
    *is_wanted = draw(all) < all->frac;
    return 1 + thousandths_of(draw_level(all));
}

int mc_bubbling_take(mc_bubbling *all, const mc_board_view *view, uint64_t bubble)
{
    uint64_t thousandths = bubble - 1;
    if (!all || bubble == 0 || thousandths > MAX_LEVEL * THOUSANDTHS || !is_ready(all) ||
        (thousandths == 0 && all->levels.probe_lines_per_s <= 0.0))
        return 0;
    all->next = (drawn){.level = (double)thousandths / THOUSANDTHS};
    return find_processors(all, view);
}

mc_press_request mc_bubbling_request(const mc_bubbling *all)
{
    return all->next.request;
}

void mc_bubbling_begin(mc_bubbling *all, const mc_reservation *shutter)
{
    all->why[0] = '\0';
    all->told = all->next;
    all->told.t0 = shutter->t0;
    all->told.times = times_of(shutter);
    if (!all->told.request.n_bubbles)
        all->told.i_turn = start_bubbles(all, all->told.level, n_bubbles_of(all, all->told.level), &all->told.times);
}

int mc_bubbling_was_told(const mc_bubbling *all, uint64_t t0)
{
    return all && all->told.t0 == t0;
}

/* Any job can write acknowledgements to the board, so reject acknowledgements with impossible values. */
static int have_others_pressed(const mc_ack *acks, int n_acks, const mc_bubble_times *times, mc_bubble_work *work)
{
    for (int i = 0; i < n_acks; i++)
        if (acks[i].has_pressed != 1 || acks[i].press_cpu_ns > times->t_end - times->t0 ||
            !mc_bubble_had_processor(times, acks[i].press_cpu_ns))
            return 0;
    if (n_acks)
        *work = (mc_bubble_work){acks[0].n_lines, acks[0].press_cpu_ns};
    return n_acks > 0;
}

void mc_bubbling_result(const mc_bubbling *all, const mc_ack *acks, int n_acks, double *level, double *probe_slowdown)
{
    const drawn *told = &all->told;
    mc_bubble_work work = {0, 0};
    *level = *probe_slowdown = 0.0;
    if (!(told->request.n_bubbles ? have_others_pressed(acks, n_acks, &told->times, &work)
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

static cpu_set_t cpus_for_others(const mc_bubbling *all, const mc_job_ranks *ranks)
{
    return both(mc_job_ranks_cpus(ranks), all->cores);
}

mc_press_offer mc_bubbling_offer(mc_bubbling *all, const mc_job_ranks *ranks)
{
    if (!all || !is_ready(all))
        return (mc_press_offer){0, 0};
    cpu_set_t cpus = cpus_for_others(all, ranks);
    uint64_t n_all = (uint64_t)all->n_workers;
    return (mc_press_offer){mc_min((uint64_t)CPU_COUNT(&cpus), n_all), n_all};
}

/* Leave out processors that the other job can use too, because bubbles there would take processor time from that
   job. */
int mc_bubbling_serve(mc_bubbling *all, const mc_reservation *shutter, const mc_board_view *view, int i_live,
                      const mc_job_ranks *ranks)
{
    uint64_t thousandths = shutter->request.level_thousandths;
    int n = mc_press_share(&shutter->request, mc_view_own_slot(view));
    if (!all || n == 0 || thousandths > MAX_LEVEL * THOUSANDTHS || !is_ready(all))
        return 0;
    double level = (double)thousandths / THOUSANDTHS;
    int is_like_ours = shutter->request.n_bubbles == (uint64_t)n_bubbles_of(all, level); /* else its levels differ */
    cpu_set_t cpus = without(cpus_for_others(all, ranks), cpus_of_slot(mc_view_slot(view, i_live)));
    if (!is_like_ours || n > all->n_workers || pin_to(all, cpus, 0) < n)
        return 0;
    mc_bubble_times times = times_of(shutter);
    all->i_served = start_bubbles(all, level, n, &times);
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
