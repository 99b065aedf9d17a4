/* The hog's loop. */
#include "bubble/bubble.h"

#include <time.h>

enum { BLOCKS_PER_GROUP = 2, LATE_NS = 1000000, SLEEP_NS = 500000 };
static const uint64_t LONGEST_NS = UINT64_C(1000000000000000);

#if defined __x86_64__ || defined __i386__
#define RELAX() __builtin_ia32_pause()
#else
#define RELAX() ((void)0)
#endif

uint64_t mc_bubble_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Each address of a chain depends on the value that was read at the previous address, so the chain waits for memory at
   each link. */
static void chase(mc_bubble *b, uint64_t n_lines)
{
    const volatile mc_bubble_line *lines = b->lines;
    for (int i = 0; i < MC_BUBBLE_CHAINS; i++) {
        uint64_t next = b->chain[i] * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        b->chain[i] = next + lines[(next >> 32) * n_lines >> 32].link;
    }
}

/* The chains come first, so that the processor does the ordered reads and writes while it waits for the chains. Writes
   stay half a working set ahead of reads, even after the size of the working set changes. If writes and reads met, the
   pressure would be lower. */
static void touch_block(mc_bubble *b, uint64_t n_lines)
{
    volatile mc_bubble_line *lines = b->lines;
    uint64_t sum = 0;
    chase(b, n_lines);
    if (b->i_read + MC_BUBBLE_READS > n_lines)
        b->i_read = 0;
    uint64_t n_runs = n_lines / MC_BUBBLE_READS, i_run = b->i_read / MC_BUBBLE_READS;
    uint64_t i_write = (i_run + n_runs / 2) % n_runs * MC_BUBBLE_WRITES;
    for (int i = 0; i < MC_BUBBLE_READS; i++)
        sum += lines[b->i_read + (uint64_t)i].link;
    b->i_read += MC_BUBBLE_READS;
    for (int i = 0; i < MC_BUBBLE_WRITES; i++)
        lines[i_write + (uint64_t)i].written = sum;
}

static void sleep_until(uint64_t until_ns, const volatile int *stop)
{
    uint64_t now;
    while (!__atomic_load_n(stop, __ATOMIC_RELAXED) && (now = mc_bubble_now_ns()) < until_ns) {
        uint64_t left = until_ns - now;
        struct timespec pause = {0, (long)(left < SLEEP_NS ? left : SLEEP_NS)};
        nanosleep(&pause, NULL);
    }
}

static uint64_t lines_of(const mc_bubble *b, uint64_t bytes)
{
    if (bytes < MC_BUBBLE_BYTES_MIN)
        bytes = MC_BUBBLE_BYTES_MIN;
    if (bytes > b->n_bytes)
        bytes = b->n_bytes;
    return bytes / MC_BUBBLE_LINE_BYTES;
}

/* Wait until the next group of blocks is due. Returns 0 if the bubble ends before that. The bubble does not catch up on
   time for which it was paused. */
static int spin_until_due(mc_bubble *b, double group_ns, uint64_t until_ns, const volatile int *stop)
{
    uint64_t now = mc_bubble_now_ns(), length = group_ns < (double)LONGEST_NS ? (uint64_t)group_ns : LONGEST_NS;
    if (length > 0 && (b->due_ns > now + LATE_NS + length || now > b->due_ns + LATE_NS))
        b->due_ns = now;
    while (length > 0 && now < b->due_ns && now < until_ns && !__atomic_load_n(stop, __ATOMIC_RELAXED)) {
        RELAX();
        now = mc_bubble_now_ns();
    }
    if (__atomic_load_n(stop, __ATOMIC_RELAXED) || now >= until_ns)
        return 0;
    b->due_ns += length;
    return 1;
}

void mc_bubble_run(mc_bubble *b, mc_bubble_setting setting, uint64_t until_ns, const volatile int *stop)
{
    if (setting.working_set_bytes == 0) {
        sleep_until(until_ns, stop);
        return;
    }
    uint64_t n_lines = lines_of(b, setting.working_set_bytes);
    int per_group = BLOCKS_PER_GROUP;
    double block_ns = setting.lines_per_s > 0 ? MC_BUBBLE_BLOCK_LINES / setting.lines_per_s * 1e9 : 0;
    /* At low rates, space single blocks evenly. */
    if (block_ns * per_group > LATE_NS)
        per_group = 1;
    while (spin_until_due(b, block_ns * per_group, until_ns, stop)) {
        for (int i = 0; i < per_group; i++)
            touch_block(b, n_lines);
        b->n_touched += (uint64_t)per_group * MC_BUBBLE_BLOCK_LINES;
    }
}
