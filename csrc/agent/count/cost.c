#define _GNU_SOURCE
#include "agent/count/cost.h"

#include "common/proc.h"

enum { N_PASSES = 40000, N_ROUNDS = 5 };

static const double LEAST_NS = 0.3;

#ifdef __x86_64__

/* Several counters in turn, as in a program whose passes follow each other at different places. */
static __thread uint64_t counters[4];

/* The jump to the stub, the count, and the jump back. */
#define PASS(counter) "jmp 2f\n\t.balign 16\n2:\tincq %" counter "\n\tjmp 3f\n\t.balign 16\n3:\n\t"

static uint64_t with_ns(void)
{
    uint64_t n = N_PASSES / 4, t = mc_now_ns();
    __asm__ volatile("1:\n\t" PASS("0") PASS("1") PASS("2") PASS("3") "decq %4\n\tjnz 1b\n\t"
                     : "+m"(counters[0]), "+m"(counters[1]), "+m"(counters[2]), "+m"(counters[3]), "+r"(n)
                     :
                     : "cc");
    return mc_now_ns() - t;
}

static uint64_t without_ns(void)
{
    uint64_t n = N_PASSES / 4, t = mc_now_ns();
    __asm__ volatile("1:\n\tdecq %0\n\tjnz 1b\n\t" : "+r"(n) : : "cc");
    return mc_now_ns() - t;
}

#elif defined(__aarch64__)

static __thread uint64_t counters[4];

/* As a stub does it, in the place of an instruction that does nothing. */
#define PASS(counter) \
    "b 2f\n\t.balign 16\n2:\tstp x16, x17, [sp, #-16]!\n\tmrs x16, tpidr_el0\n\tmov x16, %1\n\t" \
    "ldr x17, [x16, #" counter "]\n\tadd x17, x17, #1\n\tstr x17, [x16, #" counter "]\n\t" \
    "ldp x16, x17, [sp], #16\n\tb 3f\n\t.balign 16\n3:\n\t"

static uint64_t with_ns(void)
{
    uint64_t n = N_PASSES / 4, t = mc_now_ns();
    __asm__ volatile("1:\n\t" PASS("0") PASS("8") PASS("16") PASS("24") "subs %0, %0, #1\n\tb.ne 1b\n\t"
                     : "+r"(n)
                     : "r"(counters)
                     : "cc", "memory", "x16", "x17");
    return mc_now_ns() - t;
}

static uint64_t without_ns(void)
{
    uint64_t n = N_PASSES / 4, t = mc_now_ns();
    __asm__ volatile("1:\n\tsubs %0, %0, #1\n\tb.ne 1b\n\t" : "+r"(n) : : "cc");
    return mc_now_ns() - t;
}

#endif

#if defined(__x86_64__) || defined(__aarch64__)

/* The shortest of some rounds, as other processes run too. */
double mc_pass_ns(void)
{
    uint64_t with = UINT64_MAX, without = UINT64_MAX;
    for (int i = 0; i < N_ROUNDS; i++) {
        uint64_t t = with_ns();
        with = t < with ? t : with;
        t = without_ns();
        without = t < without ? t : without;
    }
    double ns = with > without ? (double)(with - without) / N_PASSES : 0.0;
    return ns > LEAST_NS ? ns : LEAST_NS;
}

#else

double mc_pass_ns(void)
{
    return LEAST_NS;
}

#endif
