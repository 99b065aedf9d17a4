#define _GNU_SOURCE
#include "common/mpicoloc.h"
#include "common/options.h"
#include "common/table.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNTER_TEXTS(name, unit, meaning) {#name, unit, meaning},
static const char *const counters[][3] = {MC_COUNTERS(COUNTER_TEXTS)};

const char *mc_counter_text(int i, int i_text)
{
    int is_there = i >= 0 && i < (int)(sizeof counters / sizeof *counters) && i_text >= 0 && i_text < 3;
    return is_there ? counters[i][i_text] : NULL;
}

int mc_shm_path(char *path, size_t size, const char *key, const char *what)
{
    const char *dir = mc_option_text(MC_OPT_SHM_DIR);
    int n = snprintf(path, size, "%s/mpicoloc.%s%s%s", dir, key, *what ? "." : "", what);
    return n > 0 && (size_t)n < size ? MC_OK : MC_E_ARG;
}

int mc_path_beside(char *path, size_t size, const char *out_path, const char *suffix)
{
    int length = (int)strnlen(out_path, MC_PATH_LEN - 1);
    if (length > 3 && strncmp(out_path + length - 3, ".h5", 3) == 0)
        length -= 3;
    int n = snprintf(path, size, "%.*s%s", length, out_path, suffix);
    return n > 0 && (size_t)n < size ? MC_OK : MC_E_ARG;
}

int mc_file_may_have(size_t size_bytes)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= size_bytes;
}

int mc_shm_open(const char *path, int flags, int is_own)
{
    struct stat status;
    int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
    if (fd < 0)
        return -1;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && (!is_own || status.st_uid == geteuid()))
        return fd;
    close(fd);
    errno = EPERM;
    return -1;
}

int mc_shm_reserve(const char *path, size_t offset_bytes, size_t size_bytes)
{
    int fd = mc_shm_open(path, O_RDWR, 1);
    if (fd < 0)
        return MC_E_SHM;
    int error = posix_fallocate(fd, (off_t)offset_bytes, (off_t)size_bytes);
    close(fd);
    return error ? MC_E_SHM : MC_OK;
}

int mc_shm_map(void **out, const char *path, size_t size_bytes, int create)
{
    if (create && !mc_file_may_have(size_bytes))
        return MC_E_LIMIT;
    int flags = O_RDWR | (create ? O_CREAT | O_EXCL : 0);
    int fd = mc_shm_open(path, flags, 1);
    if (fd < 0 && create && errno == EEXIST && unlink(path) == 0) /* left by a dead process with the same ID */
        fd = mc_shm_open(path, flags, 1);
    if (fd < 0)
        return errno == ENOENT ? MC_E_GONE : MC_E_SHM;
    struct stat status;
    int ok = create ? ftruncate(fd, (off_t)size_bytes) == 0 : 1;
    ok = ok && fstat(fd, &status) == 0 && (size_t)status.st_size >= size_bytes;
    if (ok && size_bytes == 0)
        size_bytes = (size_t)status.st_size;
    void *map = ok && size_bytes ? mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    if (map == MAP_FAILED) {
        if (create)
            unlink(path);
        return MC_E_SHM;
    }
    *out = map;
    return MC_OK;
}

void mc_shm_unmap(void *map, size_t size_bytes)
{
    if (map)
        munmap(map, size_bytes);
}

/* Segments and node files both begin with magic and version. */
static void *map_complete(const char *path, size_t size_bytes)
{
    void *map;
    if (mc_shm_map(&map, path, size_bytes, 0) != MC_OK)
        return NULL;
    const uint32_t *head = map;
    if (__atomic_load_n(&head[0], __ATOMIC_ACQUIRE) == MC_MAGIC && head[1] == MC_ABI_VERSION)
        return map;
    mc_shm_unmap(map, size_bytes);
    return NULL;
}

mc_segment *mc_segment_map(const char *path)
{
    return map_complete(path, sizeof(mc_segment));
}

mc_node *mc_node_map(const char *path)
{
    return map_complete(path, sizeof(mc_node));
}

void mc_segment_set_outcome(mc_segment *segment, uint64_t profile, const char *complaint)
{
    snprintf(segment->complaint, sizeof segment->complaint, "%s", complaint);
    __atomic_store_n(&segment->profile, profile, __ATOMIC_RELEASE);
}

/* Offered events include the events that a full ring refused, which the lanes count. Dropped events include the events
   that are still in the ring. */
static void add_up_ring(mc_segment *segment)
{
    const mc_ring *ring = &segment->ring;
    if (!ring->is_kept)
        return;
    segment->counters.n_events = ring->n_put;
    segment->counters.n_events_dropped += ring->n_put - (ring->n_taken < ring->n_put ? ring->n_taken : ring->n_put);
    for (int i = 0; i < MC_N_ALL_LANES; i++)
        segment->counters.n_events += mc_lane_tables(segment, i).head->counters.n_events_dropped;
}

void mc_segment_settle(mc_segment *segment)
{
    for (int i = 0; i < MC_N_ALL_LANES; i++) {
        mc_tables tables = mc_lane_tables(segment, i);
        if (tables.head->n_owners == 0)
            continue;
        mc_tables_drop_unborn(&tables);
        mc_pending_settle(&segment->sampling, &tables, 1);
        mc_tables_add_up(&tables);
    }
    add_up_ring(segment);
}
