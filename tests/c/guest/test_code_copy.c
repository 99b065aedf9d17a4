/* Code whose page is replaced while threads execute it. Exit code: number of failed checks. */
#define _GNU_SOURCE
#include "guest/count/code_exchange.h"
#include "../support/check.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { N_THREADS = 2, N_EXCHANGES = 2000, N_PASSES = 50, LOW = 3, HIGH = 5 };

/* Adds LOW n times: the number is in the instruction. */
unsigned add_often(unsigned n);
extern const char added[];
#ifdef __aarch64__
enum { IMMEDIATE_AT = 0 };
__asm__(".text\n\t.balign 64\n\t.globl add_often\n\t.type add_often,@function\nadd_often:\n\tmov w1, #0\n\t"
        ".globl added\nadded:\n1:\tmov w2, #3\n\tadd w1, w1, w2\n\tsubs w0, w0, #1\n\tb.ne 1b\n\tmov w0, w1\n\tret\n\t"
        ".size add_often,.-add_often");

static uint32_t word_of(unsigned number)
{
    return 0x52800002u | number << 5;
}
#else
enum { IMMEDIATE_AT = 1 };
__asm__(".text\n\t.balign 64\n\t.globl add_often\n\t.type add_often,@function\nadd_often:\n\txorl %eax, %eax\n\t"
        ".globl added\nadded:\n1:\tmovl $3, %ecx\n\taddl %ecx, %eax\n\tsubl $1, %edi\n\tjnz 1b\n\tret\n\t"
        ".size add_often,.-add_often");

static uint32_t word_of(unsigned number)
{
    return number;
}
#endif

static int is_over, n_wrong, n_mixed;

static void *run(void *data)
{
    (void)data;
    while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
        unsigned sum = add_often(N_PASSES), more = sum - LOW * N_PASSES;
        int is_wrong = sum < LOW * N_PASSES || sum > HIGH * N_PASSES || more % (HIGH - LOW) != 0;
        __atomic_fetch_add(&n_wrong, is_wrong, __ATOMIC_RELAXED);
        __atomic_fetch_add(&n_mixed, more > 0, __ATOMIC_RELAXED);
    }
    return NULL;
}

static int exchange(unsigned from, unsigned to)
{
    uint32_t expected = word_of(from), wanted = word_of(to);
    return mc_code_exchange((uint64_t)(uintptr_t)added + IMMEDIATE_AT, &expected, &wanted, sizeof wanted);
}

static void check_under_threads(void)
{
    pthread_t threads[N_THREADS];
    for (int i = 0; i < N_THREADS; i++)
        pthread_create(&threads[i], NULL, run, NULL);
    for (int i = 0; i < N_EXCHANGES; i++)
        CHECK(exchange(LOW, HIGH) && exchange(HIGH, LOW));
    CHECK(exchange(LOW, HIGH));
    while (!__atomic_load_n(&n_mixed, __ATOMIC_RELAXED))
        usleep(1000);
    __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(n_wrong == 0);
    CHECK(add_often(2) == 2 * HIGH && exchange(HIGH, LOW) && add_often(2) == 2 * LOW);
}

/* Other bytes, and a page in which the kernel traces the program. */
static void check_refusals(void)
{
    const uint32_t nothing = 0, something = 1, traced = 0xd42000a0;
    size_t n = (size_t)sysconf(_SC_PAGESIZE);
    char *page = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(!exchange(HIGH, LOW) && add_often(2) == 2 * LOW);
    CHECK(mc_code_exchange((uint64_t)(uintptr_t)page, &nothing, &something, sizeof something) && page[0] == 1);
    CHECK(mprotect(page, n, PROT_READ | PROT_WRITE) == 0);
    memcpy(page + n - sizeof traced, &traced, sizeof traced);
    CHECK(!mc_code_exchange((uint64_t)(uintptr_t)page, &something, &nothing, sizeof nothing) && page[0] == 1);
}

int main(void)
{
    alarm(60);
    check_under_threads();
    check_refusals();
    return n_failed;
}
