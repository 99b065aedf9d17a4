/* A thread that takes steps when it is told to, in MPI calls and outside, and sleeps between; with a third pair of
   counters. */
#ifndef MC_TEST_WORKER_H
#define MC_TEST_WORKER_H

#include "check.h"
#include "common/counters/perf.h"
#include "common/counters/tally.h"
#include "common/table.h"
#include "guest/hooks.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef MC_TEST_LIMIT_S /* longer in an emulator */
#define MC_TEST_LIMIT_S 60
#endif
enum { CANNOT = 77, TEST_LIMIT_S = MC_TEST_LIMIT_S, N_LOOPS = 1000000, STEP = 4000000 };

int mc_gate_install(mc_segment *segment)
{
    segment->gate.signal = 0;
    return MC_OK;
}

typedef struct worker {
    pthread_t thread;
    mc_group group;
    sem_t go, done;
    int step, tid, error;
    uint64_t amount;
    mc_frame frame;
    char stack_mark;        /* its calls are made from one place */
    uint64_t outside, last; /* counts: outside calls, and at the last begin or end of one */
    int is_inside, n_forked;
} worker;

enum { BEGIN, END, LIGHT, BUSY, LOOP, FORK, STOP };

static uint64_t counted(const worker *w)
{
    mc_ipc counts = {0, 0};
    int is_shared = 0;
    CHECK(mc_group_read(&w->group, &counts, &is_shared) == MC_OK);
    return counts.instructions;
}

static void edge(worker *self, int is_inside)
{
    uint64_t now = counted(self);
    self->outside += self->is_inside ? 0 : now - self->last;
    self->last = now;
    self->is_inside = is_inside;
}

static void light_call(worker *self)
{
    mc_frame frame;
    if (mc_enter_light(&frame, 9, self, MC_STACK()))
        mc_leave_light(&frame, 0, 0);
}

static void fork_once(worker *self)
{
    pid_t pid = fork();
    if (pid == 0) {
        mc_frame frame;
        alarm(TEST_LIMIT_S);
        int entered = mc_enter_timed(&frame, 7, self, &self->stack_mark);
        mc_leave(&frame, 0, 0);
        _exit(entered ? 0 : 1);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    self->n_forked += status == 0;
}

static void do_step(worker *self)
{
    errno = 4321;
    if (self->step == BEGIN) {
        edge(self, 1);
        CHECK(mc_enter_timed(&self->frame, 7, self, &self->stack_mark) == 1);
    } else if (self->step == END) {
        mc_leave(&self->frame, 0, 0);
        edge(self, 0);
    } else if (self->step == LIGHT) {
        for (uint64_t i = 0; i < self->amount; i++)
            light_call(self);
    }
    CHECK(errno == 4321);
    if (self->step == BUSY)
        for (uint64_t begin = counted(self); counted(self) - begin < self->amount;)
            ;
    if (self->step == LOOP)
        for (volatile uint64_t i = 0; i < self->amount; i++)
            ;
    if (self->step == FORK)
        fork_once(self);
}

static void *work(void *data)
{
    worker *self = data;
    self->tid = (int)syscall(SYS_gettid);
    CHECK(mc_group_open(&self->group, 0, 0) == MC_OK);
    self->last = counted(self);
    do {
        sem_post(&self->done);
        while (sem_wait(&self->go) != 0)
            ;
        do_step(self);
    } while (self->step != STOP);
    return NULL;
}

/* Returns when the worker sleeps again. */
static void tell(worker *w, int step, uint64_t amount)
{
    char path[64], state[256];
    w->step = step;
    w->amount = amount;
    sem_post(&w->go);
    while (sem_wait(&w->done) != 0)
        ;
    for (;;) {
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", w->tid);
        FILE *file = fopen(path, "r");
        size_t n = file ? fread(state, 1, sizeof state - 1, file) : 0;
        state[n] = '\0';
        if (file)
            fclose(file);
        if (n == 0 || strstr(state, ") S "))
            return;
        usleep(100);
    }
}

static void start(worker *w, int claims_lane)
{
    memset(w, 0, sizeof *w);
    sem_init(&w->go, 0, 0);
    sem_init(&w->done, 0, 0);
    pthread_create(&w->thread, NULL, work, w);
    while (sem_wait(&w->done) != 0)
        ;
    if (claims_lane) {
        tell(w, BEGIN, 0);
        tell(w, END, 0);
    }
}

static void stop(worker *w)
{
    w->step = STOP;
    sem_post(&w->go);
    pthread_join(w->thread, NULL);
    mc_group_close(&w->group);
}

#endif
