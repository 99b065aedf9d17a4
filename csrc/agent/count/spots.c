#define _GNU_SOURCE
#include "agent/count/spots.h"

#include "common/proc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { N_TIDS = 256, N_PER_RANK = 4, N_SAMPLES_MAX = 65536 };

typedef struct sample {
    uint64_t offset;
    int i_path;
} sample;

typedef struct samples {
    sample *rows;
    size_t n;
    uint64_t n_all;
    const mc_maps *maps;
    mc_counts *counts;
} samples;

mc_spots *mc_spots_new(void)
{
    mc_spots *spots = calloc(1, sizeof *spots);
    if (spots && !(spots->samplers = calloc(MC_N_SAMPLERS, sizeof *spots->samplers))) {
        free(spots);
        return NULL;
    }
    return spots;
}

void mc_spots_stop(mc_spots *spots)
{
    for (int i = 0; i < spots->n_samplers; i++)
        mc_sample_ring_close(&spots->samplers[i].ring);
    spots->n_samplers = 0;
}

void mc_spots_free(mc_spots *spots)
{
    if (!spots)
        return;
    mc_spots_stop(spots);
    free(spots->samplers);
    free(spots);
}

/* Returns 0 or the error number of the kernel. */
static int begin_thread(mc_spots *spots, const mc_maps *maps, const mc_rank *rank, int tid, uint64_t every_ns,
                        int has_registers)
{
    mc_sampler *sampler = &spots->samplers[spots->n_samplers];
    if (mc_sample_ring_open(&sampler->ring, tid, every_ns, has_registers) != MC_OK)
        return errno;
    sampler->maps = *maps;
    sampler->rank = rank;
    sampler->tid = tid;
    spots->n_samplers++;
    return 0;
}

static int begin_rank(mc_spots *spots, const mc_rank *rank, uint64_t every_ns, int has_registers)
{
    int error = 0, n_left = 0, n_here = 0; /* n_left is ignored, because a few threads of each rank suffice */
    int tids[N_TIDS], n = mc_proc_threads(rank->pid, tids, N_TIDS, &n_left);
    mc_maps *maps = malloc(sizeof *maps);
    for (int i = 0; maps && !error && i < n && n_here < N_PER_RANK && spots->n_samplers < MC_N_SAMPLERS; i++) {
        mc_proc_thread thread;
        if (mc_proc_read_thread(&thread, rank->pid, tids[i], 0) != MC_OK || thread.state != 'R')
            continue;
        if (n_here == 0 && mc_maps_read(maps, rank->pid) != MC_OK)
            break;
        error = begin_thread(spots, maps, rank, tids[i], every_ns, has_registers);
        n_here += error == 0;
        error = error == ESRCH ? 0 : error;
    }
    free(maps);
    return error;
}

int mc_spots_begin(mc_spots *spots, const mc_job_ranks *ranks, int i_first, uint64_t every_ns, int has_registers)
{
    int error = 0;
    mc_spots_stop(spots);
    for (int i = 0; i < ranks->n && !error && spots->n_samplers < MC_N_SAMPLERS; i++) {
        const mc_rank *rank = &ranks->rows[(i + i_first) % ranks->n];
        if (rank->alive)
            error = begin_rank(spots, rank, every_ns, has_registers);
    }
    errno = error;
    return spots->n_samplers ? MC_OK : error ? MC_E_PERF : MC_E_GONE;
}

uint64_t mc_spots_n_taken(const mc_spots *spots)
{
    uint64_t n = 0;
    for (int i = 0; i < spots->n_samplers; i++)
        n += mc_sample_ring_each(&spots->samplers[i].ring, NULL, NULL);
    return n;
}

int mc_spots_path(const mc_counts *counts, const char *path)
{
    for (uint64_t i = 0; i < counts->n_paths; i++)
        if (strcmp(counts->paths[i], path) == 0)
            return (int)i;
    return -1;
}

/* -1: there is no room for the file's name. */
static int add_path(mc_counts *counts, const char *path)
{
    int i_path = mc_spots_path(counts, path);
    if (i_path >= 0)
        return i_path;
    if (counts->n_paths == MC_N_PLACE_PATHS || strlen(path) >= MC_TEXT_LEN)
        return -1;
    strcpy(counts->paths[counts->n_paths], path);
    return (int)counts->n_paths++;
}

static void add_sample(void *data, const mc_thread_sample *sampled)
{
    samples *all = data;
    if (all->n == N_SAMPLES_MAX)
        return;
    all->n_all++;
    const mc_map *map = mc_maps_find(all->maps, sampled->address);
    int i_path = map ? add_path(all->counts, all->maps->paths[map->i_path]) : -1;
    if (i_path >= 0)
        all->rows[all->n++] = (sample){sampled->address - map->start + map->offset, i_path};
}

static int by_place(const void *a, const void *b)
{
    const sample *x = a, *y = b;
    if (x->i_path != y->i_path)
        return x->i_path - y->i_path;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static int by_number(const void *a, const void *b)
{
    uint64_t n_a = ((const mc_spot *)a)->n, n_b = ((const mc_spot *)b)->n;
    return (n_a < n_b) - (n_a > n_b);
}

void mc_spots_sort(mc_spots *spots)
{
    qsort(spots->rows, (size_t)spots->n, sizeof *spots->rows, by_number);
}

void mc_spot_add(mc_spot rows[], int *n_rows, int n_max, const mc_spot *more)
{
    int i = 0;
    while (i < *n_rows && (rows[i].offset != more->offset || rows[i].i_path != more->i_path))
        i++;
    if (i < *n_rows)
        rows[i].n += more->n;
    else if (i < n_max)
        rows[(*n_rows)++] = *more;
}

static void count_equal(mc_spots *spots, const samples *all)
{
    spots->n = 0;
    for (size_t i = 0; i < all->n; i++) {
        const sample *next = &all->rows[i];
        mc_spot *last = spots->n ? &spots->rows[spots->n - 1] : NULL;
        if (last && last->i_path == next->i_path && last->offset == next->offset)
            last->n++;
        else if (spots->n < MC_N_SPOTS)
            spots->rows[spots->n++] = (mc_spot){next->offset, 1, next->i_path};
    }
    mc_spots_sort(spots);
}

void mc_spots_end(mc_spots *spots, mc_counts *counts)
{
    samples all = {.rows = malloc(N_SAMPLES_MAX * sizeof(sample)), .counts = counts};
    for (int i = 0; all.rows && i < spots->n_samplers; i++) {
        all.maps = &spots->samplers[i].maps;
        mc_sample_ring_stop(&spots->samplers[i].ring);
        mc_sample_ring_each(&spots->samplers[i].ring, add_sample, &all);
    }
    if (all.n)
        qsort(all.rows, all.n, sizeof *all.rows, by_place);
    spots->n_samples = all.n_all;
    count_equal(spots, &all);
    free(all.rows);
    mc_spots_stop(spots);
}
