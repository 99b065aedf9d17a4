#define _GNU_SOURCE
#include "agent/bubbles/bubble_workers.h"

#include "agent/shutter/intervals.h"
#include "common/proc.h"
#include "common/threads.h"

#include <sched.h>
#include <stdlib.h>

enum { STACK_BYTES = 64 * 1024 };

/* A bubble counts only if its thread had the processor for at least this fraction of the bubble's time. */
static const double PRESSES_FRAC = 0.9;
static const uint64_t LOOK_NS = 20000;

typedef struct turn {
    uint64_t number;
    mc_bubble_times times;
    mc_bubble_setting setting;
    int n; /* the first n workers take part */
} turn;

typedef struct worker {
    pthread_t thread;
    mc_bubble_workers *all;
    int i;
    mc_bubble bubble;
    uint64_t i_turn;           /* last turn that the worker has seen */
    int memory;                /* 1: allocated; 0: not yet; -1: failed */
    uint64_t i_done;           /* last turn that the worker has completed; the fields below are stored first */
    uint64_t t_began, last_ns; /* start of that turn; length of its counted time */
    mc_bubble_work work;
} worker;

struct mc_bubble_workers {
    int n, n_wanted; /* number of workers started so far, and number wanted */
    int has_waker, stop;
    /* Memory that the first worker needs; memory that each other worker needs; memory allocated so far by all
       workers. */
    uint64_t first_bytes, other_bytes, opened_bytes;
    worker rows[MC_N_BUBBLE_WORKERS];
    pthread_mutex_t opening; /* held from reading the free memory to allocating: one worker at a time */
    pthread_mutex_t lock;
    pthread_cond_t turn_set, turn_due; /* the waker waits for turn_set, workers wait for turn_due */
    turn turn, due;                    /* the last turn that was set; the last turn whose t0 has come */
    pthread_t waker;
};

static void press(worker *w, const turn *t)
{
    const int *stop = &w->all->stop;
    w->t_began = mc_now_ns();
    mc_bubble_run(&w->bubble, t->setting, t->times.t_counted, stop);
    uint64_t n_before = w->bubble.n_touched, cpu_before = mc_clock_ns(CLOCK_THREAD_CPUTIME_ID), ns_before = mc_now_ns();
    mc_bubble_run(&w->bubble, t->setting, t->times.t_end, stop);
    w->work.n_lines = w->bubble.n_touched - n_before;
    w->work.cpu_ns = mc_clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_before;
    w->last_ns = mc_now_ns() - ns_before;
    __atomic_store_n(&w->i_done, t->number, __ATOMIC_RELEASE);
}

/* The program has hardly begun and will need memory too, so the workers together take at most half of the memory that
   was free at first. */
static int leaves_half(const mc_bubble_workers *all)
{
    uint64_t free_bytes = mc_bubble_free_bytes(),
             all_bytes = all->first_bytes + (uint64_t)(all->n_wanted - 1) * all->other_bytes;
    return !free_bytes || all_bytes <= (free_bytes + all->opened_bytes) / 2;
}

/* Allocate a worker's memory. Never do this in a shutter: it takes tens of milliseconds, and allocating also puts
   pressure on memory. */
static int open_bubble(worker *w)
{
    mc_bubble_workers *all = w->all;
    uint64_t n_bytes = w->i == 0 ? all->first_bytes : all->other_bytes;
    pthread_mutex_lock(&all->opening);
    int is_open = !__atomic_load_n(&all->stop, __ATOMIC_ACQUIRE) && leaves_half(all) &&
                  mc_bubble_open(&w->bubble, n_bytes) == MC_BUBBLE_OK;
    all->opened_bytes += is_open ? n_bytes : 0;
    pthread_mutex_unlock(&all->opening);
    return is_open;
}

static void *be_bubble(void *data)
{
    worker *w = data;
    mc_bubble_workers *all = w->all;
    const struct sched_param none = {0};
    pthread_setname_np(pthread_self(), "mpicoloc-bubble");
    /* With SCHED_IDLE, a bubble gets all the time of a processor whose ranks are paused, but hardly any time of a busy
       processor. */
    pthread_setschedparam(pthread_self(), SCHED_IDLE, &none);
    __atomic_store_n(&w->memory, open_bubble(w) ? 1 : -1, __ATOMIC_RELEASE);
    pthread_mutex_lock(&all->lock);
    while (!__atomic_load_n(&all->stop, __ATOMIC_ACQUIRE)) {
        turn now = all->due;
        if (w->i_turn == now.number) {
            pthread_cond_wait(&all->turn_due, &all->lock);
            continue;
        }
        w->i_turn = now.number;
        if (w->i >= now.n)
            continue;
        pthread_mutex_unlock(&all->lock);
        press(w, &now);
        pthread_mutex_lock(&all->lock);
    }
    pthread_mutex_unlock(&all->lock);
    mc_bubble_close(&w->bubble);
    return NULL;
}

/* Workers sleep until co-runners are paused, and then the waker wakes them. When workers waited on a co-runner's
   processor instead, they delayed the co-runner's agent by 1 to 5 ms, and two of five shutters were late. The virtual
   run time of a SCHED_IDLE thread advances about 340 times as fast as that of other threads, so its wake-up moves the
   average of the run queue ahead (Linux 6.18). */
static void *be_waker(void *data)
{
    mc_bubble_workers *all = data;
    pthread_setname_np(pthread_self(), "mpicoloc-waker");
    mc_wake_promptly();
    pthread_mutex_lock(&all->lock);
    while (!__atomic_load_n(&all->stop, __ATOMIC_ACQUIRE)) {
        turn next = all->turn;
        if (all->due.number == next.number) {
            pthread_cond_wait(&all->turn_set, &all->lock);
            continue;
        }
        pthread_mutex_unlock(&all->lock);
        mc_sleep_until(next.times.t0, &all->stop);
        pthread_mutex_lock(&all->lock);
        all->due = next;
        pthread_cond_broadcast(&all->turn_due);
    }
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

static int start_worker(mc_bubble_workers *all, int i)
{
    worker *w = &all->rows[i];
    w->all = all;
    w->i = i;
    return mc_thread_start(&w->thread, STACK_BYTES, 0, be_bubble, w) == 0;
}

mc_bubble_workers *mc_bubble_workers_open(int n, uint64_t first_bytes, uint64_t other_bytes)
{
    mc_bubble_workers *all = calloc(1, sizeof *all);
    if (!all)
        return NULL;
    all->n_wanted = n;
    all->first_bytes = first_bytes;
    all->other_bytes = other_bytes;
    pthread_mutex_init(&all->opening, NULL);
    pthread_mutex_init(&all->lock, NULL);
    pthread_cond_init(&all->turn_set, NULL);
    pthread_cond_init(&all->turn_due, NULL);
    all->has_waker = mc_thread_start(&all->waker, STACK_BYTES, 0, be_waker, all) == 0;
    while (all->n < n && start_worker(all, all->n))
        all->n++;
    if (all->has_waker && all->n == n)
        return all;
    mc_bubble_workers_close(all);
    return NULL;
}

void mc_bubble_workers_close(mc_bubble_workers *all)
{
    if (!all)
        return;
    pthread_mutex_lock(&all->lock); /* take the lock, so that no worker is between its test of `stop` and its wait */
    mc_wake(&all->stop);
    pthread_cond_signal(&all->turn_set);
    pthread_cond_broadcast(&all->turn_due);
    pthread_mutex_unlock(&all->lock);
    for (int i = 0; i < all->n; i++)
        pthread_join(all->rows[i].thread, NULL);
    if (all->has_waker)
        pthread_join(all->waker, NULL);
    pthread_cond_destroy(&all->turn_set);
    pthread_cond_destroy(&all->turn_due);
    pthread_mutex_destroy(&all->lock);
    pthread_mutex_destroy(&all->opening);
    free(all);
}

int mc_bubble_workers_are_ready(const mc_bubble_workers *all)
{
    int ready = 1;
    for (int i = 0; i < all->n && ready >= 0; i++) {
        int memory = __atomic_load_n(&all->rows[i].memory, __ATOMIC_ACQUIRE);
        ready = memory < ready ? memory : ready;
    }
    return ready;
}

int mc_bubble_workers_pin(const mc_bubble_workers *all, int i, int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return pthread_setaffinity_np(all->rows[i].thread, sizeof set, &set) == 0;
}

uint64_t mc_bubble_workers_begin(mc_bubble_workers *all, mc_bubble_times times, mc_bubble_setting setting, int n)
{
    /* Do not wait for the lock: a worker that is preempted on a rank's processor can hold it for a long time. */
    if (pthread_mutex_trylock(&all->lock) != 0)
        return 0;
    all->turn = (turn){all->turn.number + 1, times, setting, n};
    pthread_cond_signal(&all->turn_set);
    pthread_mutex_unlock(&all->lock);
    return all->turn.number;
}

static int has_ended(const mc_bubble_workers *all, int i)
{
    return __atomic_load_n(&all->rows[i].i_done, __ATOMIC_ACQUIRE) == all->turn.number;
}

void mc_bubble_workers_await(const mc_bubble_workers *all, uint64_t until_ns, int *wake)
{
    for (int i = 0; i < all->turn.n; i++)
        while (!has_ended(all, i) && mc_now_ns() < until_ns && !__atomic_load_n(wake, __ATOMIC_ACQUIRE))
            mc_nap_until(mc_min(mc_now_ns() + LOOK_NS, until_ns), wake);
}

int mc_bubble_had_processor(const mc_bubble_times *times, uint64_t cpu_ns)
{
    return (double)cpu_ns >= PRESSES_FRAC * (double)(times->t_end - times->t_counted);
}

static int has_pressed(const mc_bubble_workers *all, int i)
{
    const worker *w = &all->rows[i];
    const mc_bubble_times *times = &all->turn.times;
    return has_ended(all, i) && w->t_began <= times->t_latest && mc_bubble_had_processor(times, w->work.cpu_ns) &&
           (double)w->work.cpu_ns >= PRESSES_FRAC * (double)w->last_ns;
}

int mc_bubble_workers_have_pressed(const mc_bubble_workers *all, uint64_t i_turn, mc_bubble_work *out)
{
    int have_pressed = i_turn && i_turn == all->turn.number;
    for (int i = 0; i < all->turn.n && have_pressed; i++)
        have_pressed = has_pressed(all, i);
    if (have_pressed)
        *out = all->rows[0].work;
    return have_pressed;
}
