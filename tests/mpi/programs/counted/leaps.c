/* longjmp out of hot loops, siglongjmp out of handlers that interrupt them, faults that a handler leaves, and threads
   that are cancelled inside them. */
#include "hot.h"

#include <mpi.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static jmp_buf back;
static sigjmp_buf out;
static volatile sig_atomic_t may_leap;
static volatile uint32_t *forbidden;

static void on_alarm(int signal)
{
    (void)signal;
    if (may_leap) {
        may_leap = 0;
        siglongjmp(out, 1);
    }
}

static void on_fault(int signal)
{
    (void)signal;
    siglongjmp(out, 2);
}

static uint64_t sink;

static void *endless(void *data)
{
    (void)data;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    for (uint64_t x = 1;; x = scramble(x, 100))
        *(volatile uint64_t *)&sink = x;
    return NULL;
}

static uint64_t fall(uint64_t x, int depth)
{
    x = scramble(x, 50) ^ 0x31415926u;
    if (depth < 0)
        return x;
    if (depth == 0)
        longjmp(back, (int)(x % 1000u) + 1);
    return fall(x, depth - 1) + 1;
}

static uint64_t leap(int n)
{
    volatile uint64_t sum = 1;
    for (volatile int i = 0; i < n; i++) {
        int value = setjmp(back);
        if (value == 0)
            sum += fall(sum, i % 10);
        sum = scramble(sum + (uint64_t)value, 100);
    }
    return sum;
}

static int leave_handlers(int n)
{
    volatile int n_left = 0;
    for (volatile int i = 0; i < n; i++) {
        if (sigsetjmp(out, 1) == 0) {
            may_leap = 1;
            for (uint64_t x = 1;; x = scramble(x, 100))
                *(volatile uint64_t *)&sink = x;
        }
        n_left++;
    }
    return n_left;
}

static int leave_faults(int n)
{
    volatile int n_left = 0;
    for (volatile int i = 0; i < n; i++) {
        if (sigsetjmp(out, 1) == 0) {
            sink = scramble(sink, 200);
            *forbidden = 0x12345678u;
        }
        n_left++;
    }
    return n_left;
}

static int cancel_threads(int n)
{
    int n_cancelled = 0;
    for (int i = 0; i < n; i++) {
        pthread_t thread;
        void *result = NULL;
        pthread_create(&thread, NULL, endless, NULL);
        sink = scramble((uint64_t)i, 2000000);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        n_cancelled += result == PTHREAD_CANCELED;
    }
    return n_cancelled;
}

int main(int argc, char **argv)
{
    struct itimerspec often = {{0, 1300000}, {0, 1300000}}, never = {{0, 0}, {0, 0}};
    struct sigaction action;
    /* To this thread alone: of those of a process that are there for MPI, any may get the process's signals. */
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGALRM};
    timer_t timer;
    MPI_Init(&argc, &argv);
    memset(&action, 0, sizeof action);
    action.sa_handler = on_alarm;
    sigaction(SIGALRM, &action, NULL);
    action.sa_handler = on_fault;
    sigaction(SIGSEGV, &action, NULL);
    forbidden = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t sum = leap(200000);
    event._sigev_un._tid = getpid();
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    timer_settime(timer, 0, &often, NULL);
    int n_left = leave_handlers(600);
    timer_settime(timer, 0, &never, NULL);
    int n_faults = leave_faults(200000), n_cancelled = cancel_threads(60);
    printf("sum %llu left %d faults %d cancelled %d\n", (unsigned long long)sum, n_left, n_faults, n_cancelled);
    MPI_Finalize();
    return 9;
}
