#define _GNU_SOURCE
#include "common/counters/tally.h"

#include "common/counters/perf.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#define MC_HAS_RDPMC 1
#endif

enum {
    UNTRIED,
    BY_PAGE,   /* read in user space; mappings keep the events open, so descriptors are not needed */
    BY_KERNEL, /* read by a system call */
    CANNOT,
};

typedef struct own_counts {
    int how;
    mc_group group;
    uint64_t ids[MC_N_EVENTS];
    void *pages[MC_N_EVENTS];
} own_counts;

static __thread own_counts own = {.group = {{-1, -1}}};

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static void unmap_pages(void)
{
    for (int i = 0; i < MC_N_EVENTS; i++) {
        if (own.pages[i])
            munmap(own.pages[i], page_bytes());
        own.pages[i] = NULL;
    }
}

#ifdef MC_HAS_RDPMC
/* Read a counter as described in linux/perf_event.h. Returns 0 if no hardware counter counts the event now, or if the
   event has to share the counter. */
static int read_page(const volatile struct perf_event_mmap_page *page, uint64_t *count)
{
    uint32_t lock, index;
    uint64_t lost_ns;
    do {
        lock = __atomic_load_n(&page->lock, __ATOMIC_RELAXED);
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        index = page->cap_user_rdpmc ? page->index : 0;
        lost_ns = page->time_enabled - page->time_running;
        if (index) {
            int n_unused = 64 - page->pmc_width;
            int64_t value = (int64_t)((uint64_t)__rdpmc((int)index - 1) << n_unused) >> n_unused;
            *count = (uint64_t)page->offset + (uint64_t)value;
        }
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
    } while (__atomic_load_n(&page->lock, __ATOMIC_RELAXED) != lock);
    return index != 0 && (int64_t)lost_ns <= MC_LOST_NS;
}

static int read_pages(mc_ipc *out)
{
    return read_page(own.pages[0], &out->instructions) && read_page(own.pages[1], &out->cycles);
}

static int map_pages(mc_ipc *first)
{
    for (int i = 0; i < MC_N_EVENTS; i++) {
        void *page = mmap(NULL, page_bytes(), PROT_READ, MAP_SHARED, own.group.fds[i], 0);
        own.pages[i] = page == MAP_FAILED ? NULL : page;
        if (!own.pages[i])
            break;
    }
    if (own.pages[MC_N_EVENTS - 1] && read_pages(first))
        return 1;
    unmap_pages();
    return 0;
}
#else
#define read_pages(out) ((void)(out), 0)
#define map_pages(first) ((void)(first), 0)
#endif

static int is_ours(int i)
{
    return own.group.fds[i] >= 0 && mc_perf_is_kept(own.group.fds[i], own.ids[i]);
}

static void close_own(void)
{
    for (int i = MC_N_EVENTS - 1; i >= 0; i--) {
        if (is_ours(i))
            close(own.group.fds[i]);
        own.group.fds[i] = -1;
    }
}

static int out_of_the_way(void)
{
    int ok = 1;
    for (int i = 0; i < MC_N_EVENTS; i++) {
        own.group.fds[i] = mc_perf_keep(own.group.fds[i], &own.ids[i]);
        ok = ok && own.group.fds[i] >= 0;
    }
    return ok;
}

static int read_by_kernel(mc_ipc *out)
{
    int is_shared = 0;
    return is_ours(0) && mc_group_read(&own.group, out, &is_shared) == MC_OK && !is_shared;
}

static void open_own(void)
{
    mc_ipc counts;
    own.how = CANNOT;
    if (mc_group_open(&own.group, 0, 1) != MC_OK)
        return;
    if (map_pages(&counts)) {
        mc_group_close(&own.group);
        own.how = BY_PAGE;
    } else if (out_of_the_way() && read_by_kernel(&counts)) {
        own.how = BY_KERNEL;
    } else {
        close_own();
    }
}

static int read_own(mc_ipc *out)
{
    if (own.how == UNTRIED)
        open_own();
    if ((own.how == BY_PAGE && read_pages(out)) || (own.how == BY_KERNEL && read_by_kernel(out)))
        return 1;
    own.how = CANNOT; /* never try again, because reopened counters would start at 0 */
    return 0;
}

/* Store the odd sequence number first. The caller's next stores must come after the store of the even number, but on
   Arm a plain store could overtake that store. The load keeps the order: it waits for the store of the even number
   (LDAR for STLR), and later accesses wait for the load. */
static void publish(mc_tally *tally, mc_tally *next)
{
    /* The number is odd already if a signal handler of the application jumped out of this function. */
    next->seq |= 1;
    mc_words_store(tally, next, sizeof *tally);
    __atomic_store_n(&tally->seq, next->seq + 1, __ATOMIC_SEQ_CST);
    (void)__atomic_load_n(&tally->seq, __ATOMIC_SEQ_CST);
}

void mc_tally_start(mc_tally *tally)
{
    mc_tally next = {.seq = tally->seq};
    publish(tally, &next);
}

void mc_tally_note(mc_tally *tally, uint64_t span, int was_inside, uint64_t state)
{
    int saved_errno = errno;
    mc_ipc now = {0, 0};
    mc_tally next = *tally;
    if (next.span != span) {
        next.span = span;
        next.began = was_inside ? MC_TALLY_INSIDE : MC_TALLY_OUTSIDE;
        next.outside = next.total = (mc_ipc){0, 0};
    }
    next.state = read_own(&now) ? state : MC_TALLY_NONE;
    if (!was_inside) {
        next.outside.instructions += now.instructions - next.total.instructions;
        next.outside.cycles += now.cycles - next.total.cycles;
    }
    next.total = now;
    publish(tally, &next);
    errno = saved_errno;
}

void mc_tally_forget(void)
{
    /* A forked child does not have these mappings, and may have others at their addresses. */
    for (int i = 0; i < MC_N_EVENTS; i++)
        own.pages[i] = NULL;
    mc_tally_close();
}

void mc_tally_close(void)
{
    int saved_errno = errno;
    unmap_pages();
    if (own.how == BY_KERNEL)
        close_own();
    own.how = CANNOT;
    errno = saved_errno;
}
