#define _GNU_SOURCE
#include "guest/count/reader.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int is_taken; /* by the program, or by a library of it: Open MPI names all processes */
static int is_allowed;

/* The program's own wish stands. */
__attribute__((visibility("default"))) int prctl(int option, ...)
{
    static int (*real)(int, ...);
    unsigned long a[4];
    va_list arguments;
    va_start(arguments, option);
    for (int i = 0; i < 4; i++)
        a[i] = va_arg(arguments, unsigned long);
    va_end(arguments);
    if (option == PR_SET_PTRACER)
        __atomic_store_n(&is_taken, 1, __ATOMIC_RELEASE);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "prctl");
    return real ? real(option, a[0], a[1], a[2], a[3]) : (int)syscall(SYS_prctl, option, a[0], a[1], a[2], a[3]);
}

static int64_t name_tracer(int pid)
{
    if (__atomic_load_n(&is_taken, __ATOMIC_ACQUIRE))
        return MC_READER_TAKEN;
    if (syscall(SYS_prctl, PR_SET_PTRACER, (unsigned long)pid, 0ul, 0ul, 0ul) != 0)
        return -errno;
    is_allowed = 1;
    return MC_READER_ALLOWED;
}

void mc_reader_allow(mc_counting *counting)
{
    int pid = __atomic_load_n(&counting->reader_pid, __ATOMIC_ACQUIRE);
    if (pid > 0 && __atomic_load_n(&counting->reader_answer, __ATOMIC_RELAXED) == MC_READER_UNKNOWN)
        __atomic_store_n(&counting->reader_answer, name_tracer(pid), __ATOMIC_RELEASE);
}

void mc_reader_forget(void)
{
    if (is_allowed && !__atomic_load_n(&is_taken, __ATOMIC_ACQUIRE))
        syscall(SYS_prctl, PR_SET_PTRACER, 0ul, 0ul, 0ul, 0ul);
    is_allowed = 0;
}

#if defined(__x86_64__) || defined(__aarch64__)

/* Stubs add to these. They are in each thread's own memory, at one distance from its thread pointer: so a stub needs no
   register, and no cache line is shared. */
static __thread struct {
    uint64_t tid;
    uint64_t n[MC_N_PLACES];
} own __attribute__((aligned(64)));

static uint64_t thread_pointer(void)
{
    uint64_t pointer;
#ifdef __aarch64__
    __asm__("mrs %0, tpidr_el0" : "=r"(pointer));
#else
    __asm__("movq %%fs:0, %0" : "=r"(pointer));
#endif
    return pointer;
}

int64_t mc_reader_counters_offset(void)
{
    return (int64_t)((uint64_t)own.n - thread_pointer());
}

/* A thread that has ended leaves its row: the agent sees that and frees it. */
void mc_reader_register_thread(mc_counting *counting)
{
    if (own.tid)
        return;
    uint64_t tid = (uint64_t)syscall(SYS_gettid);
    for (int i = 0; i < MC_N_COUNTED_THREADS; i++) {
        mc_counted_thread *row = &counting->threads[i];
        uint64_t is_free = 0;
        if (__atomic_load_n(&row->address, __ATOMIC_RELAXED) ||
            !__atomic_compare_exchange_n(&row->address, &is_free, (uint64_t)&own, 0, __ATOMIC_ACQ_REL,
                                         __ATOMIC_RELAXED))
            continue;
        own.tid = tid;
        __atomic_store_n(&row->tid, tid, __ATOMIC_RELEASE);
        return;
    }
}

#endif
