#define _GNU_SOURCE
#include "agent/bubbling.h"

#include "agent/shutter/intervals.h"
#include "bubble/bubble.h"
#include "common/options.h"
#include "common/proc.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { N_BUBBLES_MAX = 16, STACK_BYTES = 64 * 1024, N_MASK = sizeof((mc_slot *)0)->cpu_mask / sizeof(uint64_t) };

enum { MAX_LEVEL = MC_BUBBLE_LEVEL_MAX };

/* With less the levels cannot be told apart: LEAST_GAIN of mpicoloc/bubble/calibrate.py. */
static const double LEAST_GAIN = 0.03;
/* Part of its time for which a bubble must have had its processor. */
static const double PRESSES_FRAC = 0.9;

/* In one shutter. The first n_workers press; level 0: the probe. */
typedef struct turn {
    uint64_t number;
    mc_bubble_times times;
    mc_bubble_setting setting;
    double level;
    int n_workers;
} turn;

/* A thread that presses when it is told a new turn. */
typedef struct worker {
    pthread_t thread;
    mc_bubbling *all;
    int i;
    mc_bubble bubble;
    uint64_t i_turn;                       /* the last one that it has seen */
    int is_open;                           /* its memory is there */
    uint64_t i_done;                       /* the last turn that it has pressed in; stored after what follows */
    uint64_t t_began, n_lines, cpu_ns, ns; /* of that turn; the last three from t_counted on */
} worker;

struct mc_bubbling {
    mc_bubble_levels levels;
    int has_cores; /* bubbles may run on `cores` only, else wherever the job may not */
    uint64_t cores[N_MASK];
    double frac;
    uint64_t random, n_bytes;
    int n_workers, stop;
    char *why; /* MC_TEXT_LEN bytes of the node file: why there are no bubbles */
    worker workers[N_BUBBLES_MAX];
    pthread_mutex_t lock;
    pthread_cond_t told;
    turn turn;
};

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
    int is_weak = status == MC_BUBBLE_OK && levels->slowdown[MAX_LEVEL] < 1.0 + LEAST_GAIN;
    if (status == MC_BUBBLE_OK && !is_weak)
        return 1;
    explain(why,
            is_weak                         ? "level 8 hardly slows the probe, run `mpicoloc bubble calibrate` anew: "
            : status == MC_BUBBLE_E_FILE    ? "this machine is not calibrated, run `mpicoloc bubble calibrate`: no "
            : status == MC_BUBBLE_E_MACHINE ? "the calibration is of another machine: "
                                            : "this is no calibration of bubbles: ",
            path);
    return 0;
}

/* Number of the levels that the option names; the i-th of them, if there is one. */
static int wanted_levels(int i, double *level)
{
    const char *text = mc_option_text(MC_OPT_BUBBLE_LEVELS);
    char *end;
    int n = 0;
    for (double value; value = strtod(text, &end), end != text; text = end + (*end == ',')) {
        if (value <= 0.0 || value > MAX_LEVEL)
            continue;
        if (n++ == i)
            *level = value;
    }
    return n;
}

static int has_cpu(const uint64_t mask[N_MASK], int cpu)
{
    return mask[cpu / 64] >> (cpu % 64) & 1;
}

static void read_cores(mc_bubbling *all)
{
    const char *list = mc_option_text(MC_OPT_BUBBLE_CORES);
    all->has_cores = list && *list;
    for (int i = 0; all->has_cores && i < 64 * N_MASK; i++) { /* the list begins again at its end */
        int cpu = mc_bubble_cpu_of(list, i);
        if (cpu >= 0 && cpu < 64 * N_MASK)
            all->cores[cpu / 64] |= (uint64_t)1 << (cpu % 64);
    }
}

static uint64_t cpu_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void press(worker *w, const turn *t)
{
    mc_bubbling *all = w->all;
    mc_sleep_until(t->times.t0, &all->stop);
    w->t_began = mc_now_ns();
    mc_bubble_run(&w->bubble, t->setting, t->times.t_counted, &all->stop);
    uint64_t n_before = w->bubble.n_touched, cpu_before = cpu_now_ns(), ns_before = mc_now_ns();
    mc_bubble_run(&w->bubble, t->setting, t->times.t1, &all->stop);
    w->n_lines = w->bubble.n_touched - n_before;
    w->cpu_ns = cpu_now_ns() - cpu_before;
    w->ns = mc_now_ns() - ns_before;
    __atomic_store_n(&w->i_done, t->number, __ATOMIC_RELEASE);
}

static void *be_bubble(void *data)
{
    worker *w = data;
    mc_bubbling *all = w->all;
    const struct sched_param none = {0};
    pthread_setname_np(pthread_self(), "mpicoloc-bubble");
    /* A processor that stands still is all ours, and of one that does not we take next to nothing. */
    pthread_setschedparam(pthread_self(), SCHED_IDLE, &none);
    /* Not in a shutter: it takes tens of milliseconds, and presses on memory itself. */
    int is_open = mc_bubble_open(&w->bubble, all->n_bytes) == MC_BUBBLE_OK;
    __atomic_store_n(&w->is_open, is_open, __ATOMIC_RELEASE);
    if (!is_open)
        explain(all->why, "the node has not the memory for them", "");
    pthread_mutex_lock(&all->lock);
    while (!__atomic_load_n(&all->stop, __ATOMIC_ACQUIRE)) {
        turn now = all->turn;
        if (w->i_turn == now.number) {
            pthread_cond_wait(&all->told, &all->lock);
            continue;
        }
        w->i_turn = now.number;
        if (w->i >= now.n_workers)
            continue;
        pthread_mutex_unlock(&all->lock);
        press(w, &now);
        pthread_mutex_lock(&all->lock);
    }
    pthread_mutex_unlock(&all->lock);
    mc_bubble_close(&w->bubble);
    return NULL;
}

static int start(mc_bubbling *all, int i)
{
    worker *w = &all->workers[i];
    pthread_attr_t attributes;
    sigset_t every, before;
    w->all = all;
    w->i = i;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&every); /* signals are for the process's other threads */
    pthread_sigmask(SIG_SETMASK, &every, &before);
    int is_started = pthread_create(&w->thread, &attributes, be_bubble, w) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return is_started;
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
    if (!read_levels(&all->levels, why) || all->levels.n_bubbles > N_BUBBLES_MAX) {
        if (!why[0])
            explain(why, "the calibration has more bubbles than there may be here", "");
        free(all);
        return NULL;
    }
    all->why = why;
    explain(why, "no shutter had counts yet", "");
    pthread_mutex_init(&all->lock, NULL);
    pthread_cond_init(&all->told, NULL);
    all->frac = frac;
    read_cores(all);
    all->random = mc_now_ns() | 1;
    memcpy(curve->slowdown, all->levels.slowdown, sizeof curve->slowdown);
    memcpy(curve->low, all->levels.low, sizeof curve->low);
    memcpy(curve->high, all->levels.high, sizeof curve->high);
    int n = all->levels.n_bubbles > 0 ? all->levels.n_bubbles : 1;
    all->n_bytes = bytes_of_worker(&all->levels, n);
    while (all->n_workers < n && start(all, all->n_workers))
        all->n_workers++;
    if (all->n_workers < n) {
        explain(why, "no thread can be started", "");
        mc_bubbling_close(all);
        return NULL;
    }
    return all;
}

void mc_bubbling_close(mc_bubbling *all)
{
    if (!all)
        return;
    pthread_mutex_lock(&all->lock); /* so that no worker is between its look at stop and its wait */
    mc_wake(&all->stop);
    pthread_cond_broadcast(&all->told);
    pthread_mutex_unlock(&all->lock);
    for (int i = 0; i < all->n_workers; i++)
        pthread_join(all->workers[i].thread, NULL);
    pthread_cond_destroy(&all->told);
    pthread_mutex_destroy(&all->lock);
    free(all);
}

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

double mc_bubbling_frac(const mc_bubbling *all)
{
    return all ? all->frac : 0.0;
}

static void add_mask(uint64_t mask[N_MASK], const mc_slot *slot)
{
    for (int i = 0; i < N_MASK; i++)
        mask[i] |= __atomic_load_n(&slot->cpu_mask[i], __ATOMIC_RELAXED);
}

static int pin(const worker *w, int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return pthread_setaffinity_np(w->thread, sizeof set, &set) == 0;
}

/* Processors of co-runners first, since these stand still: on one that no job claims, there may be a program that knows
   nothing of us. Returns how many workers have a processor. */
static int pin_workers(mc_bubbling *all, const mc_board_view *view)
{
    uint64_t own[N_MASK] = {0}, others[N_MASK] = {0};
    int n = 0, n_cpus = (int)sysconf(_SC_NPROCESSORS_CONF);
    add_mask(own, view->slot);
    for (int i = 0; i < view->n_live; i++)
        if (!mc_view_is_own(view, i))
            add_mask(others, mc_view_slot(view, i));
    for (int of_others = 1; of_others >= 0; of_others--)
        for (int cpu = 0; cpu < n_cpus && cpu < 64 * N_MASK && n < all->n_workers; cpu++)
            if (!has_cpu(own, cpu) && has_cpu(others, cpu) == of_others &&
                (!all->has_cores || has_cpu(all->cores, cpu)) && pin(&all->workers[n], cpu))
                n++;
    return n;
}

/* Each level as often as the probe. */
static turn draw_turn(mc_bubbling *all, mc_bubble_times times)
{
    int has_probe = all->levels.probe_lines_per_s > 0.0;
    int n = wanted_levels(-1, NULL), i = (int)(draw(all) * (n + has_probe));
    turn next = {.number = all->turn.number + 1, .times = times, .n_workers = i < n ? all->n_workers : 1};
    wanted_levels(i, &next.level);
    next.setting = all->levels.probe;
    if (next.level > 0.0)
        mc_bubble_setting_of(&next.setting, &all->levels, next.level, all->n_workers);
    return next;
}

int mc_bubbling_draw(mc_bubbling *all, const mc_board_view *view)
{
    if (!all || draw(all) >= all->frac)
        return 0;
    for (int i = 0; i < all->n_workers; i++)
        if (!__atomic_load_n(&all->workers[i].is_open, __ATOMIC_ACQUIRE))
            return 0;
    if (pin_workers(all, view) == all->n_workers) /* fewer would press less than the level says */
        return 1;
    explain(all->why, "there are not as many processors that the job may not use as the calibration had bubbles", "");
    return 0;
}

void mc_bubbling_begin(mc_bubbling *all, mc_bubble_times times)
{
    all->why[0] = '\0';
    pthread_mutex_lock(&all->lock);
    all->turn = draw_turn(all, times);
    pthread_cond_broadcast(&all->told);
    pthread_mutex_unlock(&all->lock);
}

int mc_bubbling_was_told(const mc_bubbling *all, uint64_t t0)
{
    return all && all->turn.times.t0 == t0;
}

static int has_pressed(const mc_bubbling *all, const worker *w, uint64_t t_latest)
{
    return __atomic_load_n(&w->i_done, __ATOMIC_ACQUIRE) == all->turn.number && w->t_began <= t_latest && w->ns > 0 &&
           (double)w->cpu_ns >= PRESSES_FRAC * (double)w->ns;
}

void mc_bubbling_result(const mc_bubbling *all, uint64_t t_latest, double *level, double *probe_slowdown)
{
    const worker *first = &all->workers[0];
    *level = *probe_slowdown = 0.0;
    for (int i = 0; i < all->turn.n_workers; i++)
        if (!has_pressed(all, &all->workers[i], t_latest))
            return;
    *level = all->turn.level;
    if (*level == 0.0 && first->n_lines > 0)
        *probe_slowdown = all->levels.probe_lines_per_s * (double)first->cpu_ns * 1e-9 / (double)first->n_lines;
}
