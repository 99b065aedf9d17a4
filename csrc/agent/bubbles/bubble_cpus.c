#define _GNU_SOURCE
#include "agent/bubbles/bubble_cpus.h"

#include "bubble/bubble.h"

#include <stdio.h>
#include <string.h>

enum { N_CPUS = 64 * MC_N_CPU_WORDS };

static void add(mc_cpus *cpus, int cpu)
{
    cpus->words[cpu / 64] |= (uint64_t)1 << (cpu % 64);
}

mc_cpus mc_cpus_of_slot(const mc_slot *slot)
{
    mc_cpus cpus;
    for (int i = 0; i < MC_N_CPU_WORDS; i++)
        cpus.words[i] = __atomic_load_n(&slot->cpu_mask[i], __ATOMIC_RELAXED);
    return cpus;
}

mc_cpus mc_cpus_of_ranks(const mc_job_ranks *ranks)
{
    mc_cpus cpus;
    mc_job_ranks_cpus(ranks, cpus.words);
    return cpus;
}

mc_cpus mc_cpus_of_list(const char *list)
{
    mc_cpus cpus;
    int is_named = list && *list;
    memset(&cpus, is_named ? 0 : 0xff, sizeof cpus);
    for (int i = 0; is_named && i < N_CPUS; i++) { /* the list begins again at its end */
        int cpu = mc_bubble_cpu_of(list, i);
        if (cpu >= 0 && cpu < N_CPUS)
            add(&cpus, cpu);
    }
    return cpus;
}

mc_cpus mc_cpus_of_machine(void)
{
    char online[512] = "";
    FILE *file = fopen("/sys/devices/system/cpu/online", "re");
    if (file && !fgets(online, sizeof online, file))
        online[0] = '\0';
    if (file)
        fclose(file);
    online[strcspn(online, "\n")] = '\0';
    return mc_cpus_of_list(online);
}

mc_cpus mc_cpus_or(mc_cpus a, mc_cpus b)
{
    for (int i = 0; i < MC_N_CPU_WORDS; i++)
        a.words[i] |= b.words[i];
    return a;
}

mc_cpus mc_cpus_and(mc_cpus a, mc_cpus b)
{
    for (int i = 0; i < MC_N_CPU_WORDS; i++)
        a.words[i] &= b.words[i];
    return a;
}

mc_cpus mc_cpus_without(mc_cpus a, mc_cpus b)
{
    for (int i = 0; i < MC_N_CPU_WORDS; i++)
        a.words[i] &= ~b.words[i];
    return a;
}

int mc_cpus_n(const mc_cpus *cpus)
{
    int n = 0;
    for (int i = 0; i < MC_N_CPU_WORDS; i++)
        n += __builtin_popcountll(cpus->words[i]);
    return n;
}

int mc_cpus_next(const mc_cpus *cpus, int cpu)
{
    for (cpu++; cpu < N_CPUS; cpu++)
        if (cpus->words[cpu / 64] >> (cpu % 64) & 1)
            return cpu;
    return -1;
}
