/* Loops whose progress a register tells: which they are, and passes from samples. Exit code: number of failed checks. */
#include "agent/count/loops.h"
#include "agent/relocation/steps.h"

#include "../support/check.h"

#include <string.h>

enum { BASE = 0x400000, N_CODE = 96, AT = 32, CANNOT = 77, RAX = 0, RCX = 2, RSI = 4, R9 = 9 };

static mc_decoder *decoder;

/* The loop around the first instruction; NOPs are around it. Step 0: none. */
static mc_stepped_loop loop_of(const char *bytes, size_t n)
{
    uint8_t code[N_CODE];
    mc_stepped_loop found = {0};
    memset(code, 0x90, sizeof code);
    memcpy(code + AT, bytes, n);
    return mc_loop_step(decoder, code, sizeof code, BASE, BASE + AT, &found) == MC_OK ? found : (mc_stepped_loop){0};
}

#define LOOP(text) loop_of(text, sizeof(text) - 1)
#define STEPS(text, by, register) (LOOP(text).step == (by) && LOOP(text).reg == (register))

#define MULSD "\xf2\x0f\x59\x06" /* mulsd (%rsi), %xmm0 */
#define ADD8 "\x48\x83\xc6\x08"  /* add $8, %rsi */
#define CMP "\x48\x39\xfe"       /* cmp %rdi, %rsi */
#define JNE(back) "\x75" back
#define JE(to) "\x74" to
#define NOP4 "\x90\x90\x90\x90"

static void test_stepped(void)
{
    mc_stepped_loop found = LOOP(MULSD ADD8 CMP JNE("\xf3"));
    CHECK(found.begin == BASE + AT && found.n_bytes == 13 && found.step == 8 && found.reg == RSI);
    CHECK(STEPS(MULSD "\x48\x83\xee\x10" CMP JNE("\xf3"), -16, RSI));            /* sub $16, %rsi */
    CHECK(STEPS(MULSD "\x48\x8d\x76\x20" CMP JNE("\xf3"), 32, RSI));             /* lea 32(%rsi), %rsi */
    CHECK(STEPS(MULSD "\x49\xff\xc1" CMP JNE("\xf4"), 1, R9));                   /* inc %r9 */
    CHECK(STEPS(MULSD "\x83\xe9\x01" CMP JNE("\xf4"), -1, RCX));                 /* sub $1, %ecx */
    CHECK(STEPS(MULSD ADD8 JE("\x02") NOP4 CMP JNE("\xed"), 8, RSI));            /* before a jump */
    CHECK(STEPS(MULSD JE("\x20") ADD8 CMP JNE("\xf1"), 8, RSI));                 /* behind a jump out of the loop */
    CHECK(STEPS(MULSD "\x48\x01\xd0" ADD8 CMP JNE("\xf0"), 8, RSI));             /* add %rdx, %rax: by no constant */
    CHECK(STEPS(MULSD "\x48\xff\xc0\x48\xff\xc0" ADD8 CMP JNE("\xed"), 8, RSI)); /* inc %rax twice */
}

static void test_not_stepped(void)
{
    CHECK(!LOOP(MULSD CMP JNE("\xf7")).step);                             /* nothing is added */
    CHECK(!LOOP(MULSD ADD8 CMP).step);                                    /* no loop */
    CHECK(!LOOP(MULSD JE("\x04") ADD8 CMP JNE("\xf1")).step);             /* not in each pass */
    CHECK(!LOOP(MULSD ADD8 "\x48\x8b\x36" CMP JNE("\xf0")).step);         /* mov (%rsi), %rsi */
    CHECK(!LOOP(MULSD ADD8 "\xe8\x00\x01\x00\x00" CMP JNE("\xee")).step); /* a call */
    CHECK(!LOOP(MULSD "\x48\x8d\x34\x96" CMP JNE("\xf3")).step);          /* lea (%rsi,%rdx,4), %rsi */
    CHECK(!LOOP(MULSD "\x48\x8d\x72\x08" CMP JNE("\xf3")).step);          /* lea 8(%rdx), %rsi */
    CHECK(!LOOP(MULSD "\x48\x83\xc4\x08" CMP JNE("\xf3")).step);          /* add $8, %rsp */
    CHECK(!LOOP(MULSD "\x66\x83\xc6\x08" CMP JNE("\xf3")).step);          /* add $8, %si */
    CHECK(!LOOP(MULSD JE("\xfa") ADD8 CMP JNE("\xf1")).step);             /* a jump back before it */
    CHECK(!LOOP(MULSD ADD8 CMP JNE("\x80")).step);                        /* to where no code was read */
    CHECK(mc_loop_step(NULL, (const uint8_t *)MULSD, 4, BASE, BASE, &(mc_stepped_loop){0}) != MC_OK);
}

enum { LOOP_AT = 0x1000, WINDOW_NS = 12800000 };

static const uint64_t EVERY_NS[2] = {500000, 370000};
static const mc_place_set set = {
    .n = 2,
    .places = {{.offset = 0x500, .i_path = 1}, {.offset = LOOP_AT, .i_path = 1, .n_bytes = 16, .step = -8, .reg = RAX}},
};

/* Samples of a thread whose sweeps have so many passes of so many nanoseconds. They begin anew with each window. */
static void sample(mc_loops *loops, uint64_t n_passes, double pass_ns)
{
    uint64_t registers[MC_N_SAMPLED_REGISTERS] = {0};
    mc_loops_begin(loops, &set);
    for (int i = 0; i < MC_N_COUNT_WINDOWS; i++) {
        uint64_t every_ns = EVERY_NS[i % 2], n = WINDOW_NS / every_ns;
        for (uint64_t j = 1; j <= n; j++) {
            uint64_t t = (uint64_t)i * WINDOW_NS + j * every_ns;
            registers[RAX] = (1u << 30) - 8 * ((uint64_t)((double)t / pass_ns) % n_passes);
            const mc_sample_place where = {LOOP_AT + 4, 1, i, i % 2, (double)WINDOW_NS / (double)n};
            mc_loops_add(loops, &(mc_thread_sample){LOOP_AT + 4, t, registers}, &where);
        }
    }
}

static void test_passes(void)
{
    mc_loops loops;
    sample(&loops, 1u << 23, 2.0);
    CHECK(mc_loops_first(&set) == 1 && loops.n == 1);
    for (int i = 0; i < MC_N_COUNT_WINDOWS; i++) {
        double expected = WINDOW_NS / 2.0, found = mc_loops_passes(&loops, 0, i);
        CHECK(found > 0.999 * expected && found < 1.001 * expected);
    }
    CHECK(!mc_loops_fail(&loops, 0));
}

/* Loops that are entered again after less than some sample distances tell nothing: not a wrong number. Sweeps of less than
   20 us are never so even that they could. */
static void test_short_sweeps(void)
{
    mc_loops loops;
    for (uint64_t n_passes = 10000; n_passes < 1000000; n_passes += n_passes / 100) {
        sample(&loops, n_passes, 2.0);
        double found = mc_loops_passes(&loops, 0, 0), expected = WINDOW_NS / 2.0;
        CHECK(found < 0.0 || (found > 0.99 * expected && found < 1.01 * expected));
        CHECK((found < 0.0) == mc_loops_fail(&loops, 0));
    }
}

static void add_at(mc_loops *loops, uint64_t offset, int i_path)
{
    uint64_t registers[MC_N_SAMPLED_REGISTERS] = {0};
    const mc_sample_place where = {offset, i_path, 0, 0, 1.0};
    mc_loops_add(loops, &(mc_thread_sample){offset, 1u << 31, registers}, &where);
}

static void test_elsewhere(void)
{
    mc_loops loops;
    sample(&loops, 1u << 23, 2.0);
    uint64_t n_pairs = loops.rows[0].n_pairs[0], n_samples = loops.rows[0].n_samples[0];
    add_at(&loops, LOOP_AT + 16, 1);
    add_at(&loops, LOOP_AT, 2);
    add_at(&loops, LOOP_AT, -1);
    CHECK(loops.rows[0].n_samples[0] == n_samples);
    add_at(&loops, LOOP_AT, 1);
    CHECK(loops.rows[0].n_samples[0] == n_samples + 1 && loops.rows[0].n_pairs[0] == n_pairs);
}

/* What stands in shared memory may be anything. */
static void test_damaged_set(void)
{
    mc_loops loops;
    mc_place_set damaged = set;
    damaged.n = UINT64_MAX;
    damaged.places[1].step = 0;
    damaged.places[1].reg = UINT64_MAX;
    mc_loops_begin(&loops, &damaged);
    CHECK(loops.n <= MC_N_LOOPS && mc_loops_first(&damaged) == 1);
    add_at(&loops, LOOP_AT, 1);
    CHECK(loops.rows[0].n_samples[0] == 0);
    memset(&damaged, 0, sizeof damaged);
    damaged.n = UINT64_MAX;
    CHECK(mc_loops_first(&damaged) == MC_N_PLACES);
}

int main(void)
{
    test_passes();
    test_short_sweeps();
    test_elsewhere();
    test_damaged_set();
    decoder = mc_decoder_new();
    if (!decoder)
        return n_failed ? n_failed : CANNOT;
    test_stepped();
    test_not_stepped();
    mc_decoder_free(decoder);
    return n_failed;
}
