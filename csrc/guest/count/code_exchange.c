#define _GNU_SOURCE
#include "guest/count/code_exchange.h"

#ifdef __x86_64__
#include <emmintrin.h>
#endif
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* brk #5, by which the kernel traces user programs on aarch64. It looks for its own record by the file that the page is
   of, and a copy is of none: the program would be killed. */
static const uint32_t TRACED = 0xd42000a0;

static int is_traced(const uint32_t *words, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes / sizeof *words; i++)
        if (words[i] == TRACED)
            return 1;
    return 0;
}

/* The kernel unmaps the old page and maps the new one in one step: a thread that would execute between them waits
   for it. */
static int take_place(void *copy, uint64_t page, size_t n_bytes)
{
    if (is_traced(copy, n_bytes) || mprotect(copy, n_bytes, PROT_READ | PROT_EXEC) != 0)
        return 0;
    __builtin___clear_cache(copy, (char *)copy + n_bytes);
    return mremap(copy, n_bytes, n_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)page) == (void *)page;
}

int mc_code_exchange(uint64_t address, const void *expected, const void *wanted, size_t n)
{
    size_t n_bytes = (size_t)sysconf(_SC_PAGESIZE);
    uint64_t page = address & ~(uint64_t)(n_bytes - 1);
    if (memcmp((const void *)address, expected, n) != 0)
        return 0;
    char *copy = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
        return 0;
    memcpy(copy, (const void *)page, n_bytes);
    memcpy(copy + (address - page), wanted, n);
    if (take_place(copy, page, n_bytes))
        return 1;
    munmap(copy, n_bytes);
    return 0;
}

/* Processors with AVX make it one store that nobody sees half of. */
static int store_16_bytes(uint64_t address, const uint64_t wanted[])
{
#ifdef __x86_64__
    __m128i both = _mm_set_epi64x((long long)wanted[1], (long long)wanted[0]);
    if (!__builtin_cpu_supports("avx"))
        return 0;
    __asm__ volatile("movdqa %0, (%1)" : : "x"(both), "r"(address) : "memory");
    return 1;
#else
    (void)address, (void)wanted;
    return 0;
#endif
}

/* One aligned store, no wider than needed. */
int mc_code_exchange_word(uint64_t address, const uint64_t expected[], const uint64_t wanted[])
{
    if (!MC_CODE_IN_PLACE)
        return mc_code_exchange(address, expected, wanted, MC_CODE_WORD_BYTES);
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
