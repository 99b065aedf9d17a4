/* Path of the calibration file for this type of machine, the same as default_path in mpicoloc/bubble/calibrate.py. */
#define _GNU_SOURCE
#include "bubble/bubble.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_BYTES = 256 };

typedef struct cpu_facts {
    char model[TEXT_BYTES], cpu[TEXT_BYTES], implementer[TEXT_BYTES], part[TEXT_BYTES], variant[TEXT_BYTES];
} cpu_facts;

static void note_fact(cpu_facts *facts, char *line)
{
    static const char *const names[] = {"model name", "cpu", "CPU implementer", "CPU part", "CPU variant"};
    char *const values[] = {facts->model, facts->cpu, facts->implementer, facts->part, facts->variant};
    char *value = strchr(line, ':');
    if (!value)
        return;
    size_t n = (size_t)(value - line);
    while (n && isspace((unsigned char)line[n - 1]))
        n--;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == n && strncmp(line, names[i], n) == 0)
            snprintf(values[i], TEXT_BYTES, "%s", value + 1);
}

static void read_facts(cpu_facts *facts)
{
    char line[TEXT_BYTES];
    FILE *file = fopen("/proc/cpuinfo", "re");
    memset(facts, 0, sizeof *facts);
    while (file && fgets(line, sizeof line, file))
        note_fact(facts, line);
    if (file)
        fclose(file);
}

/* Append text, with each run of characters other than letters and digits replaced by one hyphen. */
static void add_words(char *name, size_t size, const char *text)
{
    size_t n = strlen(name);
    for (int is_apart = n > 0; *text && n + 2 < size; text++) {
        if (!isalnum((unsigned char)*text)) {
            is_apart = n > 0;
            continue;
        }
        if (is_apart)
            name[n++] = '-';
        is_apart = 0;
        name[n++] = *text;
        name[n] = '\0';
    }
}

static void machine_name(char *name, size_t size)
{
    cpu_facts facts;
    read_facts(&facts);
    name[0] = '\0';
    if (facts.model[0] || facts.cpu[0]) {
        add_words(name, size, facts.model[0] ? facts.model : facts.cpu);
    } else if (facts.implementer[0] || facts.part[0] || facts.variant[0]) {
        add_words(name, size, "CPU");
        add_words(name, size, facts.implementer);
        add_words(name, size, facts.part);
        add_words(name, size, facts.variant);
    }
    if (!name[0])
        snprintf(name, size, "unknown");
}

int mc_bubble_calibration_path(char *path, size_t size)
{
    char name[TEXT_BYTES];
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int is_cache = cache && *cache;
    machine_name(name, sizeof name);
    int n = snprintf(path, size, "%s%s/mpicoloc/bubbles/%s-%ld-cpus.txt",
                     is_cache ? cache
                     : home   ? home
                              : "",
                     is_cache ? "" : "/.cache", name, sysconf(_SC_NPROCESSORS_ONLN));
    return n > 0 && (size_t)n < size ? MC_BUBBLE_OK : MC_BUBBLE_E_FILE;
}
