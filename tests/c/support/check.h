/* What is not so is told, and counted. */
#ifndef MC_TEST_CHECK_H
#define MC_TEST_CHECK_H

#include <stdio.h>

static int n_failed;

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            n_failed++; \
        } \
    } while (0)

#endif
