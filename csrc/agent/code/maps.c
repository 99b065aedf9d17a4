#define _GNU_SOURCE
#include "agent/code/maps.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const passed_over[] = {
    "ld-",       "libc.so",  "libc-",    "libpthread", "libdl",      "librt.so", "libmpi",     "libopen-", "libopal",
    "libprrte",  "libpmi",   "libucp",   "libucs",     "libuct",     "libucm",   "libuct_",    "libucx",   "libfabric",
    "libpsm",    "libhwloc", "libevent", "libibverbs", "librdmacm",  "libmlx",   "libefa",     "mca_",     "libmca",
    "libhcoll",  "libsharp", "libxpmem", "libcxi",     "libportals", "libnl-",   "libnuma",    "libgomp",  "libiomp",
    "libomp.so", "libmunge", "libslurm", "libpals",    "libz.so",    "libudev",  "libsci_mpi", "libvcoll",
};

static int may_show_progress(const char *path)
{
    const char *name = basename(path);
    if (path[0] != '/' || strstr(path, " (deleted)"))
        return 0;
    for (size_t i = 0; i < sizeof passed_over / sizeof *passed_over; i++)
        if (strncmp(name, passed_over[i], strlen(passed_over[i])) == 0)
            return 0;
    return 1;
}

static int is_libc(const char *path)
{
    const char *name = basename(path);
    return strncmp(name, "libc.so", 7) == 0 || strncmp(name, "libc-", 5) == 0;
}

static int path_index(mc_maps *maps, const char *path)
{
    for (int i = 0; i < maps->n_paths; i++)
        if (strcmp(maps->paths[i], path) == 0)
            return i;
    if (maps->n_paths == MC_N_MAP_PATHS || strlen(path) >= MC_PATH_LEN)
        return -1;
    strcpy(maps->paths[maps->n_paths], path);
    return maps->n_paths++;
}

static void add(mc_maps *maps, const char *path, uint64_t start, uint64_t end, uint64_t offset)
{
    int i_path = path_index(maps, path);
    if (i_path >= 0 && maps->n < MC_N_MAPS)
        maps->rows[maps->n++] = (mc_map){start, end, offset, i_path};
}

static void add_line(mc_maps *maps, char *line)
{
    mc_map map;
    char rights[5];
    int at = 0;
    line[strcspn(line, "\n")] = '\0';
    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %*s %*s %n", &map.start, &map.end, rights, &map.offset,
               &at) != 4 ||
        at == 0 || strcmp(rights, "r-xp") != 0 || map.end <= map.start)
        return;
    if (!may_show_progress(line + at)) {
        if (line[at] == '/' && maps->n_passed_over < MC_N_PASSED_OVER)
            maps->passed_over[maps->n_passed_over++] = (mc_range){map.start, map.end, is_libc(line + at)};
        return;
    }
    add(maps, line + at, map.start, map.end, map.offset);
}

int mc_maps_read(mc_maps *maps, int pid)
{
    char name[64], line[MC_PATH_LEN + 128];
    snprintf(name, sizeof name, "/proc/%d/maps", pid);
    maps->n = maps->n_paths = maps->n_passed_over = 0;
    FILE *file = fopen(name, "re");
    if (!file)
        return MC_E_GONE;
    while (fgets(line, sizeof line, file))
        add_line(maps, line);
    fclose(file);
    return maps->n ? MC_OK : MC_E_GONE;
}

const mc_map *mc_maps_find(const mc_maps *maps, uint64_t address)
{
    for (int i = 0; i < maps->n; i++)
        if (address >= maps->rows[i].start && address < maps->rows[i].end)
            return &maps->rows[i];
    return NULL;
}

const mc_range *mc_maps_passed_over(const mc_maps *maps, uint64_t address)
{
    for (int i = 0; i < maps->n_passed_over; i++)
        if (address >= maps->passed_over[i].start && address < maps->passed_over[i].end)
            return &maps->passed_over[i];
    return NULL;
}

/* 1: the two mappings are of the same file, have the same difference between addresses and file offsets, and touch or
   overlap. */
static int continues(const mc_map *a, const mc_map *b)
{
    return a->i_path == b->i_path && a->start - a->offset == b->start - b->offset && a->start <= b->end &&
           b->start <= a->end;
}

mc_map mc_maps_piece(const mc_maps *maps, uint64_t address)
{
    const mc_map *found = mc_maps_find(maps, address);
    mc_map piece = found ? *found : (mc_map){address, address, 0, -1};
    for (int i = 0; i < maps->n; i++) {
        const mc_map *row = &maps->rows[i];
        if (!continues(row, &piece) || (row->start >= piece.start && row->end <= piece.end))
            continue;
        piece.offset = row->start < piece.start ? row->offset : piece.offset;
        piece.start = row->start < piece.start ? row->start : piece.start;
        piece.end = row->end > piece.end ? row->end : piece.end;
        i = -1; /* start again, because other mappings may touch the piece, which is longer than before */
    }
    return piece;
}

uint64_t mc_maps_address(const mc_maps *maps, const char *path, uint64_t offset)
{
    for (int i = 0; i < maps->n; i++) {
        const mc_map *map = &maps->rows[i];
        if (strcmp(maps->paths[map->i_path], path) == 0 && offset >= map->offset &&
            offset - map->offset < map->end - map->start)
            return map->start + (offset - map->offset);
    }
    return 0;
}
