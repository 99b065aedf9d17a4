/* Linked into every program of the suite, in C and in Fortran: after each case, a copy of what the shim has recorded
   for this rank so far goes to a file. Without the shim, nothing happens. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/mpicoloc.h"

void conf_mark(const char *name, int tries);
int conf_wants(const char *name);
const char *conf_file(void);

static const mc_segment *segment;

static const mc_segment *map_if_own(const char *path)
{
    const mc_segment *map = MAP_FAILED;
    int file = open(path, O_RDONLY);
    if (file >= 0) {
        map = mmap(NULL, sizeof *map, PROT_READ, MAP_SHARED, file, 0);
        close(file);
    }
    if (map == MAP_FAILED || map->pid != getpid())
        return NULL;
    return map;
}

static void find_segment(void)
{
    const char *folder = getenv("MPICOLOC_SHM_DIR");
    DIR *list = folder ? opendir(folder) : NULL;
    struct dirent *entry;
    while (segment == NULL && list != NULL && (entry = readdir(list)) != NULL) {
        char path[2048];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (strstr(path, ".seg") != NULL)
            segment = map_if_own(path);
    }
    if (list != NULL)
        closedir(list);
}

static FILE *open_report(void)
{
    char path[2048];
    const char *folder = getenv("CONF_MARKS");
    if (segment == NULL)
        find_segment();
    if (segment == NULL || folder == NULL)
        return NULL;
    snprintf(path, sizeof path, "%s/%d.marks", folder, segment->world_rank);
    return fopen(path, "ab");
}

typedef struct tables {
    const mc_site_row *sites;
    const mc_peer_row *peers;
    int n_sites, n_peers;
} tables;

/* Tables of a thread, large or small; none in a lane that nobody has claimed, which has no memory yet. */
static tables tables_of(int i)
{
    const mc_lane *large = &segment->lanes[i];
    const mc_small_lane *small = &segment->small_lanes[i - MC_N_LANES];
    if (i < MC_N_LANES && large->head.n_owners)
        return (tables){large->sites, large->peers, MC_N_SITES, MC_N_PEERS};
    if (i >= MC_N_LANES && small->head.n_owners)
        return (tables){small->sites, small->peers, MC_N_SMALL_SITES, MC_N_SMALL_PEERS};
    return (tables){NULL, NULL, 0, 0};
}

static void put_counters(FILE *file)
{
    enum { N = sizeof(mc_counters) / sizeof(uint64_t) };
    mc_counters sum = segment->counters;
    for (int i = 0; i < MC_N_LANES + MC_N_SMALL_LANES; i++) {
        const mc_lane_head *head =
            i < MC_N_LANES ? &segment->lanes[i].head : &segment->small_lanes[i - MC_N_LANES].head;
        for (int k = 0; head->n_owners && k < N; k++)
            ((uint64_t *)&sum)[k] += ((const uint64_t *)&head->counters)[k];
    }
    fwrite(&sum, sizeof sum, 1, file);
}

static int put_sites(FILE *file)
{
    int n = 0;
    for (int i = 0; i < MC_N_LANES + MC_N_SMALL_LANES; i++) {
        tables t = tables_of(i);
        for (int k = 0; k < t.n_sites; k++)
            if (t.sites[k].n && ++n && file)
                fwrite(&t.sites[k], sizeof t.sites[k], 1, file);
    }
    return n;
}

static int put_peers(FILE *file)
{
    int n = 0;
    for (int i = 0; i < MC_N_LANES + MC_N_SMALL_LANES; i++) {
        tables t = tables_of(i);
        for (int k = 0; k < t.n_peers; k++)
            if (t.peers[k].key && ++n && file)
                fwrite(&t.peers[k], sizeof t.peers[k], 1, file);
    }
    return n;
}

void conf_mark(const char *name, int tries)
{
    char text[64] = {0};
    FILE *file = open_report();
    if (file == NULL)
        return;
    int numbers[4] = {tries, put_sites(NULL), put_peers(NULL), 0};
    snprintf(text, sizeof text, "%s", name);
    fwrite(text, sizeof text, 1, file);
    fwrite(numbers, sizeof numbers, 1, file);
    put_counters(file);
    put_sites(file);
    put_peers(file);
    fclose(file);
}

/* Whether this case is to be run: all are, unless CONF_CASES names some. */
int conf_wants(const char *name)
{
    const char *list = getenv("CONF_CASES");
    size_t n = strlen(name);
    for (const char *at = list; at != NULL && *at != '\0'; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == n && strncmp(at, name, n) == 0)
            return 1;
    return list == NULL || *list == '\0';
}

/* A file that all ranks may open. */
const char *conf_file(void)
{
    const char *path = getenv("CONF_FILE");
    return path != NULL ? path : "conformance.data";
}

/* ---- for Fortran: integers by address, lengths of strings behind ---- */

void conf_mark_(const char *name, const int *tries, size_t length);
int conf_wants_(const char *name, size_t length);
void conf_file_(char *path, size_t length);

static const char *c_text(const char *text, size_t length)
{
    static char copy[256];
    snprintf(copy, sizeof copy, "%.*s", (int)length, text);
    return copy;
}

void conf_mark_(const char *name, const int *tries, size_t length)
{
    conf_mark(c_text(name, length), *tries);
}

int conf_wants_(const char *name, size_t length)
{
    return conf_wants(c_text(name, length));
}

void conf_file_(char *path, size_t length)
{
    const char *text = conf_file();
    memset(path, ' ', length);
    memcpy(path, text, strlen(text) < length ? strlen(text) : length);
}
