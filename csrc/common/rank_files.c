#define _GNU_SOURCE
#include "common/rank_files.h"

#include "common/mpicoloc.h"
#include "common/proc.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct scan {
    const char *key;
    void (*found)(void *data, int world_rank, const char *path);
    void *data;
} scan;

static void found_name(void *data, const char *name)
{
    const scan *s = data;
    char path[MC_PATH_LEN], what[64], *end;
    long world_rank = strtol(name, &end, 10);
    /* Digits only: no sign, no blank. */
    if (*end || strspn(name, "0123456789") != strlen(name) || world_rank > INT_MAX)
        return;
    snprintf(what, sizeof what, "%.32s.seg", name);
    if (mc_shm_path(path, sizeof path, s->key, what) == MC_OK)
        s->found(s->data, (int)world_rank, path);
}

void mc_rank_files_scan(const char *key, void (*found)(void *data, int world_rank, const char *path), void *data)
{
    char dir[MC_PATH_LEN], prefix[MC_NAME_LEN + 16];
    scan s = {key, found, data};
    if (mc_shm_path(dir, sizeof dir, "", "") != MC_OK)
        return;
    *strrchr(dir, '/') = '\0';
    snprintf(prefix, sizeof prefix, "mpicoloc.%s.", key);
    mc_dir_scan(dir, prefix, ".seg", found_name, &s);
}
