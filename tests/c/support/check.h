/* What is not so is told, and counted. */
#ifndef MC_TEST_CHECK_H
#define MC_TEST_CHECK_H

#include <stdio.h>
#include <string.h>

static int n_failed;

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            n_failed++; \
        } \
    } while (0)

#define CHECK_EQUAL(got, want) \
    do { \
        unsigned long long g = (unsigned long long)(got), w = (unsigned long long)(want); \
        if (g != w) { \
            fprintf(stderr, "%s:%d: %s is %llu, should be %llu\n", __FILE__, __LINE__, #got, g, w); \
            __atomic_add_fetch(&n_failed, 1, __ATOMIC_RELAXED); \
        } \
    } while (0)

typedef struct named_test {
    const char *name;
    void (*run)(void);
} named_test;

/* Run the test of this name, or all if it is NULL. */
static inline void run_named(const named_test *tests, size_t n, const char *name)
{
    int n_run = 0;
    for (size_t i = 0; i < n; i++) {
        if (name && strcmp(name, tests[i].name) != 0)
            continue;
        int before = n_failed;
        tests[i].run();
        fprintf(stderr, "%s: %s\n", tests[i].name, n_failed == before ? "ok" : "FAILED");
        n_run++;
    }
    CHECK(n_run > 0);
}

#endif
