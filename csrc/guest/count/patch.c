#define _GNU_SOURCE
#include "guest/count/patch.h"

#include "common/options.h"
#include "common/proc.h"

int mc_patch_has_jumps;

#ifdef __x86_64__

#include <emmintrin.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { MC_N_PAGES_MAX = 1024, N_YIELDS_MAX = 100000 };
enum {
    PAGE_BYTES = MC_STUB_PAGE_BYTES,
    WORD_BYTES = MC_N_HALVES * sizeof(uint64_t),
    CODE = PROT_READ | PROT_EXEC,
    ALL_RIGHTS = CODE | PROT_WRITE
};

static const uint64_t STAND_MAX_NS = 5000000, SPIN_NS = 30000, AT_IT_NS = 10000000;

typedef struct jump {
    uint64_t address, before[MC_N_HALVES], after[MC_N_HALVES];
} jump;

/* In private memory, so that a forked child has its own copy. */
static jump jumps[MC_N_PLACES];
static int n_jumps;
static int is_whole;                   /* 1: all requested jumps are installed */
static uint64_t pages[MC_N_PAGES_MAX]; /* of stubs, mapped so far */
static int n_pages;
static int is_locked; /* 1: a thread is changing code */
static mc_counting *counting;
static int gate_signal;

static uint64_t page_of(uint64_t address)
{
    return address & ~(uint64_t)(PAGE_BYTES - 1);
}

static int lock(void)
{
    int is_free = 0;
    return __atomic_compare_exchange_n(&is_locked, &is_free, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static void unlock(void)
{
    __atomic_store_n(&is_locked, 0, __ATOMIC_RELEASE);
}

/* Make the processors that run this process discard instructions that they have already decoded. */
static void synchronise_cores(void)
{
    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0);
}

static int give_rights(uint64_t page, int rights)
{
    return mprotect((void *)page, PAGE_BYTES, rights) == 0;
}

/* Store both halves at once. On processors with AVX an aligned 16-byte store is atomic. */
static int store_16_bytes(uint64_t address, const uint64_t wanted[])
{
    __m128i both = _mm_set_epi64x((long long)wanted[1], (long long)wanted[0]);
    if (!__builtin_cpu_supports("avx"))
        return 0;
    __asm__ volatile("movdqa %0, (%1)" : : "x"(both), "r"(address) : "memory");
    return 1;
}

/* Replace the aligned word if it equals `expected`. A single atomic store, no wider than needed, replaces it, so that
   threads execute either the old code or the new code, never a mixture. Returns 0 if the word differs or the processor
   has no such store. */
static int exchange_word(uint64_t address, const uint64_t expected[], const uint64_t wanted[])
{
    uint64_t *halves = (uint64_t *)address;
    int i = expected[0] == wanted[0]; /* the half that changes */
    if (__atomic_load_n(&halves[0], __ATOMIC_RELAXED) != expected[0] ||
        __atomic_load_n(&halves[1], __ATOMIC_RELAXED) != expected[1])
        return 0;
    if (expected[!i] != wanted[!i])
        return store_16_bytes(address, wanted);
    __atomic_store_n(&halves[i], wanted[i], __ATOMIC_RELEASE);
    return 1;
}

/* Compare through the kernel, which does not fault if the object has been unloaded and the address is unmapped. */
static int word_is(uint64_t address, const uint64_t expected[])
{
    uint64_t word[MC_N_HALVES];
    struct iovec local = {word, sizeof word}, remote = {(void *)address, sizeof word};
    return process_vm_readv((pid_t)syscall(SYS_getpid), &local, 1, &remote, 1, 0) == (ssize_t)sizeof word &&
           memcmp(word, expected, sizeof word) == 0;
}

/* Remove all jumps. A jump that cannot be removed now stays in the table for the next try. Rows do not move, because
   another thread may fork at any time, and the child reads the rows. Change access rights only on pages that still hold
   one of our jumps, because another object may have been mapped on other pages. */
static void take_back(void)
{
    uint64_t page = 0;
    for (int i = 0; i < n_jumps; i++) {
        jump *each = &jumps[i];
        if (word_is(each->address, each->after)) {
            if (page && page != page_of(each->address))
                give_rights(page, CODE);
            page = page_of(each->address);
            if (!give_rights(page, ALL_RIGHTS) || !exchange_word(each->address, each->after, each->before))
                continue;
        }
        __atomic_store_n(&each->address, 0, __ATOMIC_RELEASE);
    }
    if (page)
        give_rights(page, CODE);
    while (n_jumps && !jumps[n_jumps - 1].address)
        n_jumps--;
    is_whole = 0;
    synchronise_cores();
}

static int is_own_page(uint64_t page)
{
    for (int i = 0; i < n_pages; i++)
        if (pages[i] == page)
            return 1;
    return 0;
}

/* Compare more code than the word: another library may have been loaded at this address, and may contain the same
   word. */
static int is_same_code(const mc_patch *patch)
{
    uint8_t code[MC_CODE_BYTES];
    size_t n = patch->n_code < sizeof code ? patch->n_code : sizeof code;
    struct iovec local = {code, n}, remote = {(void *)patch->word_address, n};
    return process_vm_readv((pid_t)syscall(SYS_getpid), &local, 1, &remote, 1, 0) == (ssize_t)n &&
           memcmp(code, patch->code, n) == 0;
}

/* Enter the jump in the table before the jump is written: another thread may fork right after the jump is written, and
   the child must find the jump in the table. */
static void note_jump(const mc_patch *patch)
{
    jump *made = &jumps[n_jumps];
    made->address = patch->word_address;
    memcpy(made->before, patch->before, sizeof made->before);
    memcpy(made->after, patch->after, sizeof made->after);
    __atomic_store_n(&n_jumps, n_jumps + 1, __ATOMIC_RELEASE);
}

static int write_jump(const mc_patch *patch)
{
    uint64_t page = page_of(patch->word_address);
    if (patch->word_address % WORD_BYTES || !is_own_page(page_of(patch->stub_address)) ||
        !word_is(patch->word_address, patch->before))
        return 0;
    note_jump(patch);
    if (!give_rights(page, ALL_RIGHTS))
        return 0;
    if (exchange_word(patch->word_address, patch->before, patch->after))
        return 1;
    give_rights(page, CODE);
    return 0;
}

static int write_jumps(void)
{
    uint64_t n = counting->n_patches < MC_N_PLACES ? counting->n_patches : MC_N_PLACES;
    for (uint64_t i = 0; i < n; i++) /* check all places first: a jump already written looks like changed code */
        if (!is_same_code(&counting->patches[i]))
            return 0;
    for (uint64_t i = 0; i < n; i++)
        if (!write_jump(&counting->patches[i]))
            return 0;
    synchronise_cores();
    is_whole = 1;
    return 1;
}

static int map_stubs(mc_stub_page *page)
{
    void *map = mmap((void *)page->address, PAGE_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if ((uint64_t)map != page->address) {
        if (map != MAP_FAILED) /* the kernel does not know MAP_FIXED_NOREPLACE */
            munmap(map, PAGE_BYTES);
        return 0;
    }
    for (int i = 0; i < MC_N_PLACES; i++) {
        const mc_patch *patch = &counting->patches[i];
        if ((uint64_t)i >= counting->n_patches || page_of(patch->stub_address) != page->address ||
            patch->stub_address + MC_STUB_BYTES > page->address + PAGE_BYTES)
            continue;
        for (int j = 0; j < MC_STUB_BYTES; j++)
            ((uint8_t *)patch->stub_address)[j] = patch->stub[j];
    }
    __builtin___clear_cache((char *)map, (char *)map + PAGE_BYTES);
    if (n_pages == MC_N_PAGES_MAX || !give_rights(page->address, CODE)) {
        munmap(map, PAGE_BYTES);
        return 0;
    }
    pages[n_pages++] = page->address;
    page->is_mapped = 1;
    return 1;
}

/* ---- the lease: the time for which the code may stay patched. The agent renews the lease; if the agent is killed, the
   lease runs out. A kernel timer ends the lease even if the program makes no MPI calls. The timer's signal goes to one
   particular thread. A signal to the whole process could go to the thread in which the C library waits for the
   application's timers, because that thread awaits the same signal. ---- */

/* The kernel's struct sigevent: the C library's name for the field with the thread's ID differs between versions. */
typedef struct kernel_sigevent {
    void *value;
    int signal, notify, tid;
    int _pad[11];
} kernel_sigevent;

enum { TO_ONE_THREAD = 4 };

static int timer;
static int has_timer;

/* Set the timer to until_ns. Does nothing if the lease has ended in the meantime. */
static void extend_lease(uint64_t until_ns)
{
    struct itimerspec when;
    memset(&when, 0, sizeof when);
    when.it_value.tv_sec = (time_t)(until_ns / 1000000000u);
    when.it_value.tv_nsec = (long)(until_ns % 1000000000u);
    if (__atomic_load_n(&has_timer, __ATOMIC_ACQUIRE))
        syscall(SYS_timer_settime, timer, TIMER_ABSTIME, &when, NULL);
}

static void end_lease(void)
{
    if (__atomic_exchange_n(&has_timer, 0, __ATOMIC_ACQ_REL))
        syscall(SYS_timer_delete, timer);
}

/* Send this thread the gate's signal at until_ns, with si_code SI_TIMER. Returns 0 if the kernel refuses a timer. */
static int begin_lease(uint64_t until_ns)
{
    kernel_sigevent event;
    memset(&event, 0, sizeof event);
    event.value = (void *)(uintptr_t)MC_GATE_VALUE(0);
    event.signal = gate_signal;
    event.notify = TO_ONE_THREAD;
    event.tid = (int)syscall(SYS_gettid);
    end_lease(); /* an older timer may belong to a thread that has ended, and would then not fire */
    if (syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &timer) != 0)
        return 0;
    __atomic_store_n(&has_timer, 1, __ATOMIC_RELEASE);
    extend_lease(until_ns ? until_ns : 1); /* 0 would disarm the timer */
    return 1;
}

static int install(void)
{
    int is_done = 1;
    if (is_whole) /* an earlier request has installed them, and the agent missed its completion */
        return 1;
    if (n_jumps) /* some jumps could not be removed earlier */
        take_back();
    if (n_jumps)
        return 0;
    for (int i = 0; i < MC_N_STUB_PAGES && is_done; i++)
        if (counting->pages[i].address && !counting->pages[i].is_mapped)
            is_done = map_stubs(&counting->pages[i]);
    if (is_done)
        is_done = write_jumps();
    if (!is_done)
        take_back();
    return is_done;
}

static void end_change(void)
{
    if (!n_jumps)
        end_lease();
    __atomic_store_n(&mc_patch_has_jumps, n_jumps != 0, __ATOMIC_RELAXED);
    __atomic_store_n(&counting->n_patched, (uint64_t)n_jumps, __ATOMIC_RELAXED);
    __atomic_store_n(&counting->t_changed, mc_now_ns(), __ATOMIC_RELAXED);
    unlock();
}

static void make_change(uint32_t request)
{
    int is_done = lock();
    if (is_done) {
        if (request == MC_PATCH_INSTALL)
            is_done = begin_lease(counting->lease_until_ns) && install();
        else
            take_back();
        is_done = is_done && (request == MC_PATCH_INSTALL || !n_jumps);
        end_change();
    }
    __atomic_store_n(&counting->request, is_done ? MC_PATCH_DONE : MC_PATCH_FAILED, __ATOMIC_RELEASE);
    syscall(SYS_futex, &counting->request, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

uint64_t mc_patch_check_lease(uint64_t now)
{
    uint64_t until = counting ? __atomic_load_n(&counting->lease_until_ns, __ATOMIC_RELAXED) : UINT64_MAX;
    uint64_t all = UINT64_MAX, mask;
    if (!counting || !__atomic_load_n(&mc_patch_has_jumps, __ATOMIC_RELAXED))
        return 0;
    if (now < until)
        return until;
    /* Block signals, because a handler could fork or receive a request for a patch. */
    if (syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &mask, sizeof mask) != 0)
        return 0;
    int is_own = lock();
    if (is_own) {
        take_back();
        until = n_jumps ? now + AT_IT_NS : 0;
        if (n_jumps) /* try again later, not in every MPI call */
            __atomic_store_n(&counting->lease_until_ns, until, __ATOMIC_RELAXED);
        end_change();
    }
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof mask);
    return is_own ? until : now + AT_IT_NS;
}

void mc_patch_obey_lease(void)
{
    uint64_t t_again = mc_patch_check_lease(mc_now_ns());
    if (t_again)
        extend_lease(t_again);
}

static uint32_t present_request(void)
{
    return counting ? __atomic_load_n(&counting->request, __ATOMIC_ACQUIRE) : MC_PATCH_NONE;
}

static int is_under_way(uint32_t request)
{
    return request == MC_PATCH_ASSEMBLE || request == MC_PATCH_INSTALL || request == MC_PATCH_REMOVE ||
           request == MC_PATCH_BUSY;
}

int mc_patch_is_asked(void)
{
    return is_under_way(present_request());
}

static int is_complete(void)
{
    return __atomic_load_n(&counting->n_waiting, __ATOMIC_ACQUIRE) >= counting->n_awaited;
}

void mc_patch_take_part(void)
{
    uint64_t begin = mc_now_ns(), now = begin;
    uint32_t request = present_request();
    if (!counting)
        return;
    __atomic_fetch_add(&counting->n_waiting, 1, __ATOMIC_ACQ_REL);
    while (is_under_way(request) && now < begin + STAND_MAX_NS) {
        if ((request == MC_PATCH_INSTALL || request == MC_PATCH_REMOVE) && is_complete()) {
            uint32_t taken = request;
            if (__atomic_compare_exchange_n(&counting->request, &taken, MC_PATCH_BUSY, 0, __ATOMIC_ACQUIRE,
                                            __ATOMIC_RELAXED))
                make_change(request);
        } else if (now > begin + SPIN_NS) {
            struct timespec rest = {0, (long)(begin + STAND_MAX_NS - now)};
            syscall(SYS_futex, &counting->request, FUTEX_WAIT, request, &rest, NULL, 0);
        }
        request = present_request();
        now = mc_now_ns();
    }
    __atomic_fetch_sub(&counting->n_waiting, 1, __ATOMIC_ACQ_REL);
}

/* ---- permission for the agent to read this rank's memory, which Yama restricts to parents (ptrace_scope 1) ---- */

static int
    is_taken; /* the program or one of its libraries has given the permission: Open MPI gives it to all processes */
static int is_allowed;

/* Wrapper that notes whether the program itself calls PR_SET_PTRACER, which takes precedence. */
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

/* Give the requesting process permission to read, unless the program has named another process: the kernel stores only
   one, and does not reveal which one. */
static void allow_reader(void)
{
    int pid = __atomic_load_n(&counting->reader_pid, __ATOMIC_ACQUIRE);
    if (pid > 0 && __atomic_load_n(&counting->reader_answer, __ATOMIC_RELAXED) == MC_READER_UNKNOWN)
        __atomic_store_n(&counting->reader_answer, name_tracer(pid), __ATOMIC_RELEASE);
}

static void forget_reader(void)
{
    if (is_allowed && !__atomic_load_n(&is_taken, __ATOMIC_ACQUIRE))
        syscall(SYS_prctl, PR_SET_PTRACER, 0ul, 0ul, 0ul, 0ul);
    is_allowed = 0;
}

/* Counters of the stubs, in thread-local memory at a fixed offset from the thread pointer. So a stub needs no register,
   and threads share no cache line. */
static __thread struct {
    uint64_t tid;
    uint64_t n[MC_N_PLACES];
} own __attribute__((aligned(64)));

static uint64_t thread_pointer(void)
{
    uint64_t pointer;
    __asm__("movq %%fs:0, %0" : "=r"(pointer));
    return pointer;
}

/* Offset of the counters from the thread pointer, the same in each thread. */
static int64_t counters_offset(void)
{
    return (int64_t)((uint64_t)own.n - thread_pointer());
}

/* Enter this thread in the table. The agent frees the rows of threads that have ended. */
static void register_thread(void)
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

/* ---- interface to the rest of the guest ---- */

void mc_patch_register_thread(void)
{
    if (!counting)
        return;
    register_thread();
    allow_reader();
}

void mc_patch_open(mc_segment *segment)
{
    const char *meter = mc_option_text(MC_OPT_METER);
    /* Jobs with other meters skip this. With `auto`, one system call is wasted if the meter turns out to be ipc. */
    if (meter && strcmp(meter, "auto") != 0 && strcmp(meter, "count") != 0)
        return;
    /* If the process has a system-call filter, the filter could kill it for a system call that the program itself never
       makes. */
    if (mc_option_number(MC_OPT_PATCHING) == 0.0 || mc_proc_n_filters(0) != 0 ||
        syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0) != 0)
        return;
    segment->counting.counters_offset = counters_offset();
    gate_signal = segment->gate.signal;
    counting = &segment->counting;
}

void mc_patch_close(void)
{
    if (!counting)
        return;
    int is_own = 0;
    for (int i = 0; i < N_YIELDS_MAX && !is_own; i++) { /* another thread may hold the lock for some microseconds */
        is_own = lock();
        if (!is_own)
            sched_yield();
    }
    counting->counters_offset = 0;
    forget_reader();
    if (!is_own)
        return;
    take_back();
    end_lease();
    mc_patch_has_jumps = 0;
    counting->n_patched = 0;
    /* keep the lock, so that no code is changed any more */
}

void mc_patch_forget(void)
{
    if (counting)
        take_back();
    mc_patch_has_jumps = 0;
    counting = NULL;
}

#endif
