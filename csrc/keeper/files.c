/* Make, restore and remove the job's files in shared memory. */
#define _GNU_SOURCE
#include "common/proc.h"
#include "common/rank_files.h"
#include "common/table.h"
#include "keeper/keeper.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGE_BYTES = 4096 };

/* Write the pages of a map; pages of zeros stay holes. */
static int write_pages(int fd, const char *map, size_t n_bytes)
{
    static const char zeros[PAGE_BYTES];
    for (size_t at = 0; at < n_bytes; at += PAGE_BYTES) {
        size_t n = n_bytes - at < PAGE_BYTES ? n_bytes - at : PAGE_BYTES;
        if (memcmp(map + at, zeros, n) != 0 && pwrite(fd, map + at, n, (off_t)at) != (ssize_t)n)
            return 0;
    }
    return 1;
}

/* Recreate a deleted file. Only the first n_known bytes can be read: the rest may have no memory. Returns 1 if the file
   was missing and has been recreated. */
static int restore(const mc_keeper *k, const char *what, const void *map, size_t n_known, size_t size_bytes)
{
    char path[MC_PATH_LEN];
    if (mc_shm_path(path, sizeof path, k->key, what) != MC_OK)
        return 0;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) /* usually the file exists already */
        return 0;
    int ok = ftruncate(fd, (off_t)size_bytes) == 0 && write_pages(fd, map, n_known);
    close(fd);
    if (!ok)
        unlink(path);
    return ok;
}

void mc_files_restore(mc_keeper *k)
{
    char what[32];
    for (int i = 0; i < k->n_ranks; i++) {
        const mc_segment *segment = k->ranks[i].segment;
        uint64_t n_lanes = __atomic_load_n(&segment->n_lanes, __ATOMIC_ACQUIRE);
        uint64_t n_events = segment->size_bytes > sizeof *segment ? segment->size_bytes - sizeof *segment : 0;
        int n = n_lanes < 1 ? 1 : n_lanes > MC_N_ALL_LANES ? MC_N_ALL_LANES : (int)n_lanes;
        size_t n_known = n < MC_N_ALL_LANES ? mc_lane_offset(n) : sizeof *segment;
        snprintf(what, sizeof what, "%d.seg", k->ranks[i].world_rank);
        restore(k, what, segment, n_known, sizeof *segment + (n_events < UINT32_MAX ? n_events : 0));
    }
    if (!k->node)
        return;
    uint64_t n_shutters = k->node->n_shutters < MC_N_SHUTTERS ? k->node->n_shutters : MC_N_SHUTTERS;
    size_t n_known = offsetof(mc_node, shutters) + n_shutters * sizeof *k->node->shutters;
    if (restore(k, "node", k->node, n_known, sizeof *k->node)) {
        mc_shm_unmap(k->node, sizeof *k->node); /* find_node maps the new file, to which other processes write */
        k->node = NULL;
    }
}

/* ---- making ---- */

void mc_files_make_node(const mc_keeper *k)
{
    char path[MC_PATH_LEN];
    void *map;
    if (k->node || mc_shm_path(path, sizeof path, k->key, "node") != MC_OK ||
        mc_shm_map(&map, path, sizeof(mc_node), 1) != MC_OK)
        return;
    /* The agent may have failed for lack of memory, so reserve memory first: a SIGBUS here would leave all the job's
       files behind. The part of the file for shutters stays a hole, because there are no shutters. */
    if (mc_shm_reserve(path, 0, offsetof(mc_node, shutters)) != MC_OK) {
        mc_shm_unmap(map, sizeof(mc_node));
        unlink(path);
        return;
    }
    mc_node *node = map;
    node->abi_version = MC_ABI_VERSION;
    node->size_bytes = sizeof *node;
    snprintf(node->key, sizeof node->key, "%s", k->key);
    snprintf(node->meter_reason, sizeof node->meter_reason, "%s",
             k->has_agent ? "it could not start" : "the job ended before it had started");
    node->t_open = node->t_last = mc_now_ns();
    __atomic_store_n(&node->magic, MC_MAGIC, __ATOMIC_RELEASE);
}

/* ---- removing ---- */

static void remove_segment(void *unused, int world_rank, const char *path)
{
    (void)unused, (void)world_rank;
    unlink(path);
}

void mc_files_remove(mc_keeper *k, int is_end)
{
    char path[MC_PATH_LEN];
    /* The files from `init` on are for ranks that still run, because such ranks can initialise MPI again and announce
       that to the coordinator. */
    static const char *const whats[] = {"node", "log", "checkpoint", "init", "off", "past", "forked", "partitioned"};
    for (size_t i = 0; i < (is_end ? sizeof whats / sizeof *whats : 3); i++)
        if (mc_shm_path(path, sizeof path, k->key, whats[i]) == MC_OK)
            unlink(path);
    mc_rank_files_scan(k->key, remove_segment, NULL);
}

/* ---- the log ---- */

/* A line that begins with `mpicoloc: ` is a complete message already. */
void mc_files_read_log(const mc_keeper *k, char *complaint, size_t size)
{
    static const char own[] = "mpicoloc: ";
    char path[MC_PATH_LEN], line[MC_COMPLAINT_LEN], last[MC_COMPLAINT_LEN] = "no reason given";
    int fd = mc_shm_path(path, sizeof path, k->key, "log") == MC_OK ? mc_shm_open(path, O_RDONLY, 1) : -1;
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    while (file && fgets(line, sizeof line, file))
        if (line[strspn(line, " \r\n")])
            memcpy(last, line, sizeof last);
    if (file)
        fclose(file);
    last[strcspn(last, "\r\n")] = '\0';
    if (strncmp(last, own, strlen(own)) == 0)
        snprintf(complaint, size, "%s", last + strlen(own));
    else
        snprintf(complaint, size, "no profile was written: %.*s", MC_COMPLAINT_LEN - 64, last);
}
