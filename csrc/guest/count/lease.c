/* A timer of the kernel, so that a program comes to the gate that makes no MPI call. It exists only while the code is
   changed. Its signal goes to one certain thread: one for the whole process might be taken by the thread with which
   the C library waits for timers of the application, which uses the same signal. */
#define _GNU_SOURCE
#include "guest/count/lease.h"

#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* As the kernel has it: the C library gives the thread's id no name that all its versions know. */
typedef struct kernel_sigevent {
    void *value;
    int signal, notify, tid;
    int _pad[11];
} kernel_sigevent;

enum { TO_ONE_THREAD = 4 };

static int timer;
static int has_timer;

void mc_lease_extend(uint64_t until_ns)
{
    struct itimerspec when;
    memset(&when, 0, sizeof when);
    when.it_value.tv_sec = (time_t)(until_ns / 1000000000u);
    when.it_value.tv_nsec = (long)(until_ns % 1000000000u);
    if (__atomic_load_n(&has_timer, __ATOMIC_ACQUIRE))
        syscall(SYS_timer_settime, timer, TIMER_ABSTIME, &when, NULL);
}

void mc_lease_end(void)
{
    if (__atomic_exchange_n(&has_timer, 0, __ATOMIC_ACQ_REL))
        syscall(SYS_timer_delete, timer);
}

int mc_lease_begin(int signal, uint64_t until_ns)
{
    kernel_sigevent event;
    memset(&event, 0, sizeof event);
    event.value = (void *)(uintptr_t)MC_GATE_VALUE(0);
    event.signal = signal;
    event.notify = TO_ONE_THREAD;
    event.tid = (int)syscall(SYS_gettid);
    mc_lease_end(); /* one of a thread that has ended would not come */
    if (syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &timer) != 0)
        return 0;
    __atomic_store_n(&has_timer, 1, __ATOMIC_RELEASE);
    mc_lease_extend(until_ns ? until_ns : 1); /* 0 would stop it */
    return 1;
}
