/* The full trace: a thread in the node agent's process writes all events of the job's ranks to a file. */
#define _GNU_SOURCE
#include "common/options.h"
#include "common/proc.h"
#include "common/rank_files.h"
#include "common/ring.h"
#include "common/threads.h"
#include "trace/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- encoding of events as columns, with as few bytes for each value as most values need ---- */

enum {
    N_SLOTS = 2 * MC_TRACE_CHUNK,
    SLOT_SHIFT = 48,
    ROOM = sizeof(mc_trace_chunk) + MC_TRACE_CHUNK * (8 + 8 + 8 + 8 + 2) + 64,
};

typedef struct slot {
    uint64_t kind;
    uint32_t round, i_kind;
} slot;

typedef struct trace_encoder {
    uint32_t round, n_kinds; /* entries of earlier rounds count as free */
    slot slots[N_SLOTS];
    uint64_t kinds[MC_TRACE_CHUNK];
    uint64_t values[MC_TRACE_N_COLUMNS][MC_TRACE_CHUNK];
    uint64_t exceptions[MC_TRACE_CHUNK];
    uint32_t places[MC_TRACE_CHUNK];
    uint8_t out[ROOM];
} trace_encoder;

static uint32_t find_kind(trace_encoder *e, uint64_t kind)
{
    uint32_t i = (uint32_t)(kind * 0x9e3779b97f4a7c15ULL >> SLOT_SHIFT);
    while (e->slots[i].round == e->round && e->slots[i].kind != kind)
        i = (i + 1) % N_SLOTS;
    if (e->slots[i].round != e->round) {
        e->slots[i] = (slot){kind, e->round, e->n_kinds};
        e->kinds[e->n_kinds++] = kind;
    }
    return e->slots[i].i_kind;
}

static uint64_t kind_of(const mc_event *event)
{
    uint64_t tail;
    memcpy(&tail, &event->peer, sizeof tail);
    return tail & ~((uint64_t)MC_EVENT_LAP << 32);
}

static void split(trace_encoder *e, mc_trace_chunk *chunk, const mc_event *events, uint32_t n)
{
    uint64_t t = events[0].t_ns;
    chunk->t_first = chunk->t_min = chunk->t_max = t;
    for (uint32_t i = 0; i < n; i++) {
        const mc_event *event = &events[i];
        int64_t step = (int64_t)(event->t_ns - t);
        t = event->t_ns;
        chunk->t_step = step < chunk->t_step ? step : chunk->t_step;
        chunk->t_min = t < chunk->t_min ? t : chunk->t_min;
        chunk->t_max = t > chunk->t_max ? t : chunk->t_max;
        e->values[MC_TRACE_T][i] = (uint64_t)step;
        e->values[MC_TRACE_DURATION][i] = event->duration_ns;
        e->values[MC_TRACE_BYTES][i] = event->bytes;
        e->values[MC_TRACE_KIND][i] = find_kind(e, kind_of(event));
    }
    for (uint32_t i = 0; i < n && chunk->t_step; i++)
        e->values[MC_TRACE_T][i] -= (uint64_t)chunk->t_step;
}

static uint32_t n_bytes(uint64_t value)
{
    return value ? (uint32_t)(71 - __builtin_clzll(value)) / 8 : 0;
}

static uint32_t best_width(const uint64_t *values, uint32_t n)
{
    uint32_t n_of[9] = {0}, best = 8, n_wider = 0;
    uint64_t least = 8 * (uint64_t)n;
    for (uint32_t i = 0; i < n; i++)
        n_of[n_bytes(values[i])]++;
    for (uint32_t width = 8; width-- > 0;) {
        n_wider += n_of[width + 1];
        uint64_t size = (uint64_t)n * width + 12 * (uint64_t)n_wider;
        if (size < least) {
            least = size;
            best = width;
        }
    }
    return best;
}

static uint8_t *append(uint8_t *out, const void *data, size_t size)
{
    memcpy(out, data, size);
    return out + size;
}

static uint8_t *put_column(trace_encoder *e, mc_trace_column *column, const uint64_t *values, uint32_t n, uint8_t *out)
{
    uint32_t width = best_width(values, n), n_exceptions = 0;
    uint64_t most = width == 8 ? UINT64_MAX : (1ull << (8 * width)) - 1;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t value = values[i];
        if (__builtin_expect(value > most, 0)) {
            e->exceptions[n_exceptions] = value;
            e->places[n_exceptions++] = i;
            value = 0;
        }
        memcpy(out, &value, sizeof value); /* the next value overwrites the bytes beyond `width` */
        out += width;
    }
    *column = (mc_trace_column){width, n_exceptions};
    out = append(out, e->exceptions, n_exceptions * sizeof *e->exceptions);
    return append(out, e->places, n_exceptions * sizeof *e->places);
}

/* Encode n events (1 to MC_TRACE_CHUNK) of a rank. The payload is valid until the next call. */
static const void *encode(trace_encoder *e, int rank, const mc_event *events, uint32_t n, uint32_t *size_bytes)
{
    mc_trace_chunk chunk = {.rank = rank, .n = n};
    uint8_t *out = e->out + sizeof chunk;
    e->round++;
    e->n_kinds = 0;
    split(e, &chunk, events, n);
    chunk.n_kinds = e->n_kinds;
    out = append(out, e->kinds, e->n_kinds * sizeof *e->kinds);
    for (int i = 0; i < MC_TRACE_N_COLUMNS; i++)
        out = put_column(e, &chunk.columns[i], e->values[i], n, out);
    memset(out, 0, 8);
    memcpy(e->out, &chunk, sizeof chunk);
    *size_bytes = ((uint32_t)(out - e->out) + 7) & ~7u;
    return e->out;
}

/* ---- the file ---- */

/* Each block is written completely or not at all, so that the file can be read even if the node has failed. Errors are
   returned as errno values. */
typedef struct trace_file {
    int fd; /* -1: closed */
    uint64_t size_bytes, n_pushed, t_pushed;
} trace_file;

enum { NAMES_BYTES_MAX = 1 << 20 };

static const uint64_t PUSH_EVERY_NS = 1000000000u;

static uint32_t crc_table[8][256];
static pthread_once_t crc_once = PTHREAD_ONCE_INIT;

static void make_crc_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
        crc_table[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int j = 1; j < 8; j++)
            crc_table[j][i] = crc_table[j - 1][i] >> 8 ^ crc_table[0][crc_table[j - 1][i] & 0xff];
}

/* CRC-32 of the data. size_bytes: a multiple of 8. */
static uint32_t crc_of(const uint8_t *data, uint32_t size_bytes)
{
    uint32_t crc = 0xffffffffu;
    pthread_once(&crc_once, make_crc_table);
    for (uint32_t i = 0; i < size_bytes; i += 8) {
        uint32_t low, high;
        memcpy(&low, data + i, sizeof low);
        memcpy(&high, data + i + 4, sizeof high);
        low ^= crc;
        crc = crc_table[7][low & 0xff] ^ crc_table[6][low >> 8 & 0xff] ^ crc_table[5][low >> 16 & 0xff] ^
              crc_table[4][low >> 24] ^ crc_table[3][high & 0xff] ^ crc_table[2][high >> 8 & 0xff] ^
              crc_table[1][high >> 16 & 0xff] ^ crc_table[0][high >> 24];
    }
    return ~crc;
}

static int write_all(int fd, struct iovec *parts, int n_parts)
{
    while (n_parts) {
        ssize_t n = writev(fd, parts, n_parts);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n ? errno : ENOSPC;
        while (n_parts && (size_t)n >= parts->iov_len) {
            n -= (ssize_t)parts->iov_len;
            parts++;
            n_parts--;
        }
        if (n_parts) {
            parts->iov_base = (char *)parts->iov_base + n;
            parts->iov_len -= (size_t)n;
        }
    }
    return 0;
}

static int trace_file_put(trace_file *file, uint16_t type, const void *payload, uint32_t size_bytes)
{
    mc_trace_block block = {MC_TRACE_MAGIC, MC_TRACE_VERSION, type, size_bytes, crc_of(payload, size_bytes)};
    struct iovec parts[] = {{&block, sizeof block}, {(void *)(uintptr_t)payload, size_bytes}};
    int error = write_all(file->fd, parts, 2);
    if (!error)
        file->size_bytes += sizeof block + size_bytes;
    else if (ftruncate(file->fd, (off_t)file->size_bytes) != 0)
        return error; /* readers see from the checksum that the block is incomplete */
    return error;
}

static void trace_file_close(trace_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
}

/* Path of the file: <profile without .h5>.trace/<first rank of this node>.mct. With is_apart the folder is <profile
   without .h5>-<job>.trace, because mpicoloc/profile/assemble.py then gives the profile the same suffix. Returns the
   length of the folder's name; 0 if the path is too long. */
static size_t path_of(char *path, size_t size, const mc_segment *first, int is_apart)
{
    char suffix[MC_NAME_LEN + 16] = ".trace";
    if (is_apart)
        snprintf(suffix, sizeof suffix, "-%.*s.trace", MC_NAME_LEN, first->job_id);
    if (mc_path_beside(path, size - 32, first->out_path, suffix) != MC_OK)
        return 0;
    size_t n = strlen(path);
    snprintf(path + n, size - n, "/%d.mct", first->world_rank);
    return n;
}

/* Whether a tracer holds the file's lock, as it does while it writes the file. */
static int is_in_use(const char *path)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    int in_use = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (fd >= 0)
        close(fd);
    return in_use;
}

static int put_head(trace_file *file, const mc_segment *first)
{
    mc_trace_head head = {.world_size = first->world_size,
                          .n_nodes = first->n_nodes,
                          .start_realtime_ns = first->start_realtime_ns,
                          .t_init = first->t_init};
    memcpy(head.job_id, first->job_id, sizeof head.job_id);
    memcpy(head.hostname, first->hostname, sizeof head.hostname);
    return trace_file_put(file, MC_TRACE_HEAD, &head, sizeof head);
}

/* Open the list of the calls' names, which is in the folder of the library that this rank has loaded. */
static FILE *open_names(const mc_segment *first)
{
    char line[MC_PATH_LEN + 128], path[MC_PATH_LEN + 144], name[64];
    FILE *found = NULL;
    snprintf(name, sizeof name, "/proc/%d/maps", first->pid);
    FILE *maps = fopen(name, "re");
    while (maps && !found && fgets(line, sizeof line, maps)) {
        char *begin = strchr(line, '/'), *library = strstr(line, "/libmpicoloc-"), *end = strrchr(line, '.');
        if (!begin || !library || !end || end < library)
            continue;
        snprintf(path, sizeof path, "%.*s.calls.json", (int)(end - begin), begin);
        found = fopen(path, "re");
    }
    if (maps)
        fclose(maps);
    return found;
}

/* Write the names of the calls. Without the list, readers show numbers. */
static int put_names(trace_file *file, const mc_segment *first)
{
    int error = 0;
    FILE *list = open_names(first);
    char *text = list ? malloc(NAMES_BYTES_MAX) : NULL;
    size_t n = text ? fread(text, 1, NAMES_BYTES_MAX - 8, list) : 0;
    if (n) {
        memset(text + n, ' ', 8);
        error = trace_file_put(file, MC_TRACE_CALLS, text, ((uint32_t)n + 7) & ~7u);
    }
    free(text);
    if (list)
        fclose(list);
    return error;
}

/* End of the block at `begin`; 0 if the block is incomplete, for example because a tracer was killed while writing
   it. */
static uint64_t end_of_block(int fd, uint64_t begin, uint64_t size_bytes)
{
    mc_trace_block block;
    if (pread(fd, &block, sizeof block, (off_t)begin) != (ssize_t)sizeof block || block.magic != MC_TRACE_MAGIC ||
        block.version != MC_TRACE_VERSION || block.size_bytes % 8)
        return 0;
    uint64_t end = begin + sizeof block + block.size_bytes;
    return end <= size_bytes ? end : 0;
}

/* End of the last complete block of a file of this job; 0 if the file is another job's. */
static uint64_t end_of_blocks(int fd, uint64_t size_bytes, const mc_segment *first)
{
    mc_trace_head head;
    if (pread(fd, &head, sizeof head, sizeof(mc_trace_block)) != (ssize_t)sizeof head ||
        memcmp(head.job_id, first->job_id, sizeof head.job_id) != 0)
        return 0;
    uint64_t end = 0, next = 0;
    while ((next = end_of_block(fd, end, size_bytes)) != 0)
        end = next;
    return end;
}

/* Open a file that another tracer of this job has begun, to append to it. Returns 0 if there is no such file. */
static int open_again(trace_file *file, const char *path, const mc_segment *first)
{
    struct stat status;
    file->fd = open(path, O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
    if (file->fd < 0)
        return 0;
    (void)flock(file->fd, LOCK_EX | LOCK_NB);
    if (fstat(file->fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid()) {
        uint64_t end = end_of_blocks(file->fd, (uint64_t)status.st_size, first);
        if (end && (end == (uint64_t)status.st_size || ftruncate(file->fd, (off_t)end) == 0)) {
            file->size_bytes = file->n_pushed = end;
            return 1;
        }
    }
    trace_file_close(file);
    return 0;
}

static int make_folder(char *path, size_t n)
{
    path[n] = '\0';
    int error = mkdir(path, 0777) != 0 && errno != EEXIST ? errno : 0;
    path[n] = '/';
    return error;
}

/* Lock the folder, so that if two jobs begin together, one of them sees the file of the other. Any process that may
   read the folder can hold this lock, so wait for at most 0.1 s. Returns the folder's descriptor, even if the lock was
   not free in time, or -1. */
static int lock_folder(char *path, size_t n)
{
    path[n] = '\0';
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    path[n] = '/';
    for (int i = 0; fd >= 0 && i < 100 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; i++)
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return fd;
}

static int create_locked(trace_file *file, const mc_segment *first, char *path, size_t size)
{
    if (is_in_use(path)) { /* another running job writes it */
        size_t n = path_of(path, size, first, 1);
        int error = n ? make_folder(path, n) : ENAMETOOLONG;
        if (error)
            return error;
    }
    /* Never overwrite the old file, because another process may be reading it. */
    if (unlink(path) != 0 && errno != ENOENT)
        return errno;
    file->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (file->fd < 0)
        return errno;
    (void)flock(file->fd, LOCK_EX | LOCK_NB); /* on file systems without locks, the last job to begin keeps the name */
    return 0;
}

static int create(trace_file *file, const mc_segment *first)
{
    char path[MC_PATH_LEN + 64];
    size_t n = path_of(path, sizeof path, first, 0);
    int error = n ? make_folder(path, n) : ENAMETOOLONG;
    if (error)
        return error;
    int folder = lock_folder(path, n);
    error = create_locked(file, first, path, sizeof path);
    if (folder >= 0)
        close(folder);
    error = error ? error : put_head(file, first);
    return error ? error : put_names(file, first);
}

/* Open the trace file. is_begun: another tracer of this job has written events, so append after the file's last
   complete block. Otherwise, or if the file belongs to another job that has ended, replace the file. */
static int trace_file_open(trace_file *file, const mc_segment *first, int is_begun)
{
    char path[MC_PATH_LEN + 64];
    *file = (trace_file){.fd = -1};
    for (int is_apart = 0; is_begun && is_apart < 2; is_apart++)
        if (path_of(path, sizeof path, first, is_apart) && open_again(file, path, first))
            return 0;
    return create(file, first);
}

/* Start write-back to disk from time to time, without waiting. */
static void trace_file_push(trace_file *file, uint64_t now)
{
    if (file->fd < 0 || now < file->t_pushed + PUSH_EVERY_NS || file->n_pushed == file->size_bytes)
        return;
    sync_file_range(file->fd, (off_t)file->n_pushed, (off_t)(file->size_bytes - file->n_pushed), SYNC_FILE_RANGE_WRITE);
    file->n_pushed = file->size_bytes;
    file->t_pushed = now;
}

/* ---- the thread ---- */

enum { STACK_BYTES = 256 * 1024, NICE = 5 };

static const uint64_t NAP_MIN_NS = 1000000, NAP_MAX_NS = 10000000;
static const uint64_t FIND_EVERY_NS = 50000000;   /* interval between searches, until all ranks are found */
static const uint64_t ALL_WITHIN_NS = 2000000000; /* after this time, open the file even if ranks are missing */
static const uint64_t OLDEST_NS = 1000000000;     /* events are written at this age at the latest */

typedef struct traced_rank {
    mc_segment *segment;
    mc_event *events;
    size_t size_bytes;
    uint64_t n_events_max;
    int world_rank;
    uint64_t n_taken, t_taken;
} traced_rank;

struct mc_tracer {
    char key[MC_NAME_LEN];
    pthread_t thread;
    int wake; /* futex; a value other than 0 ends the thread */
    int error;
    int n_ranks, local_size;
    uint64_t nap_ns, t_found, t_first;
    trace_file file;
    trace_encoder *encoder;
    traced_rank ranks[MC_N_NODE_RANKS];
};

static int map_rank(traced_rank *rank, const char *path)
{
    struct stat status;
    void *map;
    if (stat(path, &status) != 0 || (size_t)status.st_size < sizeof(mc_segment) ||
        mc_shm_map(&map, path, (size_t)status.st_size, 0) != MC_OK)
        return MC_E_SHM;
    mc_segment *segment = map;
    size_t room = ((size_t)status.st_size - sizeof(mc_segment)) / sizeof(mc_event);
    /* The magic is stored after the other fields, so read it before them. A field that is read before the magic could
       be older than the magic. */
    int is_complete = __atomic_load_n(&segment->magic, __ATOMIC_ACQUIRE) == MC_MAGIC;
    uint64_t n = segment->n_events_max;
    if (!is_complete || segment->abi_version != MC_ABI_VERSION || !segment->ring.is_kept || n == 0 || (n & (n - 1)) ||
        n > room) {
        mc_shm_unmap(map, (size_t)status.st_size);
        return MC_E_ABI;
    }
    *rank = (traced_rank){.segment = segment,
                          .events = (mc_event *)(segment + 1),
                          .size_bytes = (size_t)status.st_size,
                          .n_events_max = n,
                          .n_taken = segment->ring.n_taken};
    return MC_OK;
}

static void add_rank(void *data, int world_rank, const char *path)
{
    mc_tracer *tracer = data;
    traced_rank *rank = &tracer->ranks[tracer->n_ranks];
    if (tracer->n_ranks == MC_N_NODE_RANKS)
        return;
    for (int i = 0; i < tracer->n_ranks; i++)
        if (tracer->ranks[i].world_rank == world_rank)
            return;
    if (map_rank(rank, path) != MC_OK)
        return;
    rank->world_rank = world_rank;
    rank->t_taken = mc_now_ns();
    tracer->local_size = rank->segment->local_size;
    tracer->t_first = tracer->n_ranks ? tracer->t_first : rank->t_taken;
    tracer->n_ranks++;
}

static void find_ranks(mc_tracer *tracer, uint64_t now)
{
    if ((tracer->n_ranks && tracer->n_ranks >= tracer->local_size) || now < tracer->t_found + FIND_EVERY_NS)
        return;
    tracer->t_found = now;
    mc_rank_files_scan(tracer->key, add_rank, tracer);
}

/* Stop taking events. The rings fill up, and ranks count the events that a full ring refuses. */
static void give_up(mc_tracer *tracer, int error)
{
    tracer->error = error;
    for (int i = 0; i < tracer->n_ranks; i++)
        __atomic_store_n(&tracer->ranks[i].segment->ring.error, (uint64_t)error, __ATOMIC_RELEASE);
}

static int open_file(mc_tracer *tracer)
{
    const traced_rank *first = &tracer->ranks[0];
    uint64_t n_taken = 0; /* events taken by another tracer: the keeper's or the coordinator's */
    for (int i = 0; i < tracer->n_ranks; i++) {
        n_taken += tracer->ranks[i].n_taken;
        if (tracer->ranks[i].world_rank < first->world_rank)
            first = &tracer->ranks[i];
    }
    int error = trace_file_open(&tracer->file, first->segment, n_taken > 0);
    if (error)
        give_up(tracer, error);
    return !error;
}

static int has_events(const mc_tracer *tracer)
{
    for (int i = 0; i < tracer->n_ranks; i++)
        if (__atomic_load_n(&tracer->ranks[i].segment->ring.n_put, __ATOMIC_ACQUIRE) != tracer->ranks[i].n_taken)
            return 1;
    return 0;
}

static int is_ready(mc_tracer *tracer, uint64_t now, int is_last)
{
    if (tracer->error || tracer->n_ranks == 0)
        return 0;
    if (tracer->file.fd >= 0)
        return 1;
    if (tracer->n_ranks < tracer->local_size && now < tracer->t_first + ALL_WITHIN_NS && !is_last)
        return 0;
    return has_events(tracer) && open_file(tracer);
}

/* Number of complete, adjacent events from place i on, at most n. */
static uint32_t n_whole(const traced_rank *rank, uint64_t i, uint64_t n)
{
    uint64_t at = i & (rank->n_events_max - 1), n_side = rank->n_events_max - at, found = 0;
    uint64_t lap = (uint64_t)mc_event_lap(i, rank->n_events_max) << 32, mask = (uint64_t)MC_EVENT_LAP << 32;
    n = n < n_side ? n : n_side;
    n = n < MC_TRACE_CHUNK ? n : MC_TRACE_CHUNK;
    while (found < n && (__atomic_load_n(mc_event_tail(&rank->events[at + found]), __ATOMIC_ACQUIRE) & mask) == lap)
        found++;
    return (uint32_t)found;
}

static int put_chunk(mc_tracer *tracer, traced_rank *rank, uint32_t n)
{
    uint32_t size_bytes;
    const mc_event *events = &rank->events[rank->n_taken & (rank->n_events_max - 1)];
    const void *payload = encode(tracer->encoder, rank->world_rank, events, n, &size_bytes);
    int error = trace_file_put(&tracer->file, MC_TRACE_EVENTS, payload, size_bytes);
    if (error) {
        give_up(tracer, error);
        return 0;
    }
    rank->n_taken += n;
    __atomic_store_n(&rank->segment->ring.n_taken, rank->n_taken, __ATOMIC_RELEASE);
    return 1;
}

/* Skip an empty place. A thread leaves such a place if it ends after reserving the place and before filling it. */
static void pass_hole(traced_rank *rank)
{
    rank->n_taken++;
    __atomic_fetch_add(&rank->segment->counters.n_events_dropped, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&rank->segment->ring.n_taken, rank->n_taken, __ATOMIC_RELEASE);
}

/* Take events from a rank's ring. Returns the ring's fill level in sixteenths. */
static int take(mc_tracer *tracer, traced_rank *rank, uint64_t now, int is_last)
{
    uint64_t n = __atomic_load_n(&rank->segment->ring.n_put, __ATOMIC_ACQUIRE) - rank->n_taken;
    int is_running = __atomic_load_n(&rank->segment->state, __ATOMIC_ACQUIRE) == MC_RANK_RUNNING;
    if (n == 0 || n > rank->n_events_max) { /* there is nothing to take, or the ring is damaged */
        rank->t_taken = now;
        return 0;
    }
    int fill = (int)(16 * n / rank->n_events_max);
    if (!is_last && is_running && fill < 2 && n < MC_TRACE_CHUNK && now < rank->t_taken + OLDEST_NS)
        return fill;
    rank->t_taken = now;
    while (n) {
        uint32_t n_now = n_whole(rank, rank->n_taken, n);
        if (n_now && !put_chunk(tracer, rank, n_now))
            break;
        if (!n_now && !is_last)
            break;
        if (!n_now)
            pass_hole(rank);
        n -= n_now ? n_now : 1;
    }
    return fill;
}

static void turn(mc_tracer *tracer, int is_last)
{
    uint64_t now = mc_now_ns();
    int fullest = 0;
    find_ranks(tracer, is_last ? UINT64_MAX : now);
    if (!is_ready(tracer, now, is_last))
        return;
    for (int i = 0; i < tracer->n_ranks && !tracer->error; i++) {
        int fill = take(tracer, &tracer->ranks[i], now, is_last);
        fullest = fill > fullest ? fill : fullest;
    }
    if (fullest >= 4)
        tracer->nap_ns = NAP_MIN_NS;
    else if (fullest < 2 && tracer->nap_ns < NAP_MAX_NS)
        tracer->nap_ns *= 2;
    trace_file_push(&tracer->file, now);
}

static void *be_tracer(void *data)
{
    mc_tracer *tracer = data;
    pthread_setname_np(pthread_self(), "mpicoloc-trace");
    /* Use a low priority, so as not to delay the agent, which is another thread of this process and has deadlines. */
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
    while (!__atomic_load_n(&tracer->wake, __ATOMIC_ACQUIRE)) {
        turn(tracer, 0);
        mc_nap_until(mc_now_ns() + tracer->nap_ns, &tracer->wake);
    }
    turn(tracer, 1);
    return NULL;
}

mc_tracer *mc_tracer_start(const char *key)
{
    if (strcmp(mc_option_text(MC_OPT_TRACE), "all") != 0)
        return NULL;
    mc_tracer *tracer = calloc(1, sizeof *tracer);
    if (!tracer)
        return NULL;
    snprintf(tracer->key, sizeof tracer->key, "%s", key);
    tracer->file.fd = -1;
    tracer->nap_ns = NAP_MIN_NS;
    tracer->encoder = calloc(1, sizeof *tracer->encoder);
    if (!tracer->encoder || mc_thread_start(&tracer->thread, STACK_BYTES, 0, be_tracer, tracer) != 0) {
        free(tracer->encoder);
        free(tracer);
        return NULL;
    }
    return tracer;
}

void mc_tracer_stop(mc_tracer *tracer)
{
    if (!tracer)
        return;
    mc_wake(&tracer->wake);
    pthread_join(tracer->thread, NULL);
    trace_file_close(&tracer->file);
    for (int i = 0; i < tracer->n_ranks; i++)
        mc_shm_unmap(tracer->ranks[i].segment, tracer->ranks[i].size_bytes);
    free(tracer->encoder);
    free(tracer);
}
