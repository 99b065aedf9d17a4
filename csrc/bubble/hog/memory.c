/* The hog's memory. */
#define _GNU_SOURCE
#include "bubble/bubble.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static const uint64_t HUGE_PAGE_BYTES = 2 << 20;

/* Files of a control group with its limit and the memory that it uses. `cache` is the line of memory.stat that holds
   the page cache in that memory, which the kernel drops when it needs memory. */
typedef struct group_files {
    const char *root, *limit, *used, *cache;
} group_files;

static const group_files V1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                               "total_inactive_file"};
static const group_files V2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};

/* The number after `word` in a file, or at the file's beginning if `word` is "". 0: not found. */
static uint64_t number_in(const char *path, const char *word)
{
    char line[256];
    uint64_t found = 0;
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    while (!found && fgets(line, sizeof line, file))
        if (strncmp(line, word, strlen(word)) == 0 && sscanf(line + strlen(word), "%lu", &found) != 1)
            found = 0;
    fclose(file);
    return found;
}

static uint64_t number_of_group(const group_files *files, const char *group, const char *name, const char *word)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s%s/%s", files->root, group, name);
    return n < (int)sizeof path ? number_in(path, word) : 0;
}

/* Memory that the limits of a group and of all its parent groups leave free, but at most `most`. */
static uint64_t left_by_limits(const group_files *files, char *group, uint64_t most)
{
    for (char *end = group + strlen(group); end; end = strrchr(group, '/')) {
        *end = '\0';
        uint64_t limit = number_of_group(files, group, files->limit, "");
        uint64_t used = number_of_group(files, group, files->used, "");
        uint64_t cache = number_of_group(files, group, "memory.stat", files->cache);
        uint64_t taken = used - (cache < used ? cache : used);
        if (limit && limit < most + taken)
            most = limit > taken ? limit - taken : 1; /* 0 would mean unknown */
    }
    return most;
}

uint64_t mc_bubble_free_bytes(void)
{
    char line[PATH_MAX];
    uint64_t free_bytes = number_in("/proc/meminfo", "MemAvailable:") * 1024;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && free_bytes && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        if (!controllers[1] || strstr(controllers + 1, "memory"))
            free_bytes = left_by_limits(controllers[1] ? &V1 : &V2, group, free_bytes);
    }
    if (file)
        fclose(file);
    return free_bytes;
}

int mc_bubble_open(mc_bubble *b, uint64_t n_bytes)
{
    memset(b, 0, sizeof *b);
    if (n_bytes < MC_BUBBLE_BYTES_MIN)
        n_bytes = MC_BUBBLE_BYTES_MIN;
    n_bytes = (n_bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    uint64_t free_bytes = mc_bubble_free_bytes();
    if (free_bytes && n_bytes > free_bytes)
        return MC_BUBBLE_E_MEMORY;
    void *map = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return errno == ENOMEM ? MC_BUBBLE_E_MEMORY : MC_BUBBLE_E_MAP;
    /* Use large pages: with small pages, much of the pressure would be on page tables. It does no harm if madvise or
       mlock fails. */
    madvise(map, n_bytes, MADV_HUGEPAGE);
    memset(map, 0, n_bytes);
    (void)mlock(map, n_bytes);
    b->lines = map;
    b->n_bytes = n_bytes;
    for (int i = 0; i < MC_BUBBLE_CHAINS; i++)
        b->chain[i] = (uint64_t)i + 1;
    return MC_BUBBLE_OK;
}

void mc_bubble_close(mc_bubble *b)
{
    if (b->lines)
        munmap(b->lines, b->n_bytes);
    memset(b, 0, sizeof *b);
}
