#define _GNU_SOURCE
#include "bubble/bubble.h"

#include <sched.h>
#include <stdlib.h>

int mc_bubble_cpu_of(const char *list, int i)
{
    int n = 0, wanted = -1;
    for (int turn = 0; turn < 2; turn++) {
        int at = 0;
        for (const char *p = list; *p;) {
            char *end;
            long first = strtol(p, &end, 10), last = first;
            if (end == p || first < 0)
                return -1;
            if (*end == '-')
                last = strtol(p = end + 1, &end, 10);
            if (end == p || last < first || last >= CPU_SETSIZE || (*end && *end != ','))
                return -1;
            for (long cpu = first; cpu <= last; cpu++, at++)
                if (turn == 1 && at == wanted)
                    return (int)cpu;
            p = *end ? end + 1 : end;
        }
        n = at;
        if (n == 0)
            return -1;
        wanted = i % n;
    }
    return -1;
}
