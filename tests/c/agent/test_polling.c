/* Which loops only wait. Exit code: number of failed checks. */
#include "agent/relocation/polling.h"

#include "../support/check.h"

#include <string.h>

enum { BASE = 0x400000, N_CODE = 96, AT = 32, CANNOT = 77 };

static mc_decoder *decoder;

/* Whether code polls at its instruction that begins i bytes behind its begin; NOPs are around it. */
static int polls_at(int i, const char *bytes, size_t n)
{
    uint8_t code[N_CODE];
    memset(code, 0x90, sizeof code);
    memcpy(code + AT, bytes, n);
    return mc_polls(decoder, code, sizeof code, BASE, BASE + AT + (uint64_t)i);
}

#define POLLS_AT(i, text) polls_at(i, text, sizeof(text) - 1)
#define POLLS(text) POLLS_AT(0, text)

#define LOAD "\x8b\x07"      /* mov (%rdi), %eax */
#define TEST "\x85\xc0"      /* test %eax, %eax */
#define PAUSE "\xf3\x90"     /* pause */
#define JE(back) "\x74" back /* je */
#define JNE(back) "\x75" back
#define JMP(back) "\xeb" back

static void test_waiting(void)
{
    CHECK(POLLS(LOAD TEST JE("\xfa")));
    CHECK(POLLS_AT(2, LOAD TEST JE("\xfa")));
    CHECK(POLLS_AT(4, LOAD TEST JE("\xfa")));
    CHECK(POLLS("\x83\x3f\x00" JE("\xfb")));                         /* cmpl $0, (%rdi) */
    CHECK(POLLS("\x83\x3d\x00\x01\x00\x00\x07" JE("\xf7")));         /* cmpl $7, 0x100(%rip) */
    CHECK(POLLS("\x48\x8b\x07\x8b\x10\x85\xd2" JE("\xf7")));         /* by a pointer that is loaded, too */
    CHECK(POLLS(LOAD TEST JNE("\x02") JMP("\xf8") "\x90"));          /* out by a jump forward */
    CHECK(POLLS("\xf3\x0f\x10\x07\x0f\x2e\xc1" JE("\xf7")));         /* movss (%rdi), %xmm0; ucomiss %xmm1, %xmm0 */
    CHECK(POLLS(PAUSE LOAD "\x83\xe9\x01" TEST JE("\xf5")));         /* with a counter: sub $1, %ecx */
    CHECK(POLLS("\xe8\x00\x01\x00\x00" PAUSE LOAD TEST JE("\xf3"))); /* a call between */
}

static void test_working(void)
{
    CHECK(!POLLS(LOAD "\x83\xe9\x01" TEST JE("\xf7")));            /* counts passes itself: sub $1, %ecx */
    CHECK(!POLLS("\x48\x83\xc7\x04" LOAD TEST JE("\xf6")));        /* add $4, %rdi: searches */
    CHECK(!POLLS("\x48\x8b\x3f\x48\x85\xff" JNE("\xf8")));         /* mov (%rdi), %rdi: follows a list */
    CHECK(!POLLS("\xf2\x0f\x58\x07\x83\x3f\x00" JNE("\xf7")));     /* addsd (%rdi), %xmm0 */
    CHECK(!POLLS(LOAD "\x89\x06" TEST JE("\xf8")));                /* mov %eax, (%rsi) */
    CHECK(!POLLS("\xf0\xff\x07" JNE("\xfb")));                     /* lock incl (%rdi) */
    CHECK(!POLLS("\xe8\x00\x01\x00\x00" LOAD TEST JE("\xf5")));    /* who knows what it calls */
    CHECK(!POLLS("\xff\xc9" JNE("\xfc")));                         /* dec %ecx: no load */
    CHECK(!POLLS("\x8b\x14\x8f\x01\xd0\xff\xc1\x39\xf1\x75\xf5")); /* sums an array */
    CHECK(!POLLS("\x0f\x28\x07\x0f\x58\xc8\x48\x83\xc7\x10\x48\x39\xf7" JNE("\xf1"))); /* of vectors */
    CHECK(!POLLS(LOAD TEST));                                                          /* no loop */
    CHECK(!POLLS(LOAD TEST "\xc3" JE("\xf9")));                                        /* it ends before the jump */
    CHECK(!POLLS(LOAD TEST JE("\x80")));                                               /* to where no code was read */
    CHECK(!mc_polls(decoder, (const uint8_t *)LOAD, 2, BASE, BASE + 9));
}

/* A write that a jump may leave out keeps what the last pass wrote. */
static void test_left_out(void)
{
    /* mov (%rdi), %eax; test; je over the next one; mov %eax, %ecx; cmp %ecx, %esi; jne */
    CHECK(!POLLS(LOAD TEST JE("\x02") "\x89\xc1\x39\xce" JNE("\xf4")));
    CHECK(POLLS(LOAD TEST "\x89\xc1\x39\xce" JNE("\xf6")));
}

/* The pause of an inner loop says nothing of the outer one. */
static void test_nested(void)
{
#define INNER PAUSE "\x83\x3e\x00" JE("\xf9")         /* pause; cmpl $0, (%rsi) */
#define OUTER "\x89\x0f" INNER "\xff\xc9" JNE("\xf3") /* mov %ecx, (%rdi); ...; dec %ecx */
    CHECK(!POLLS_AT(0, OUTER));
    CHECK(POLLS_AT(2, OUTER) && POLLS_AT(4, OUTER));
    CHECK(!POLLS_AT(9, OUTER));
}

int main(void)
{
    CHECK(mc_polls(NULL, (const uint8_t *)LOAD, 2, BASE, BASE) == 0);
    decoder = mc_decoder_new();
    if (!decoder)
        return n_failed ? n_failed : CANNOT;
    test_waiting();
    test_working();
    test_left_out();
    test_nested();
    mc_decoder_free(decoder);
    return n_failed;
}
