/* The file of a trace: blocks with checksums, so that the file of a node that died can be read. */
#define _GNU_SOURCE
#include "trace/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

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

/* size_bytes: a multiple of 8. */
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

/* <profile without .h5>.trace/<first rank of this node>.mct */
static int path_of(char *path, size_t size, const mc_segment *first)
{
    if (mc_path_beside(path, size - 32, first->out_path, ".trace") != MC_OK)
        return ENAMETOOLONG;
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return errno;
    size_t n = strlen(path);
    snprintf(path + n, size - n, "/%d.mct", first->world_rank);
    return 0;
}

static int put_head(mc_trace_file *file, const mc_segment *first)
{
    mc_trace_head head = {.world_size = first->world_size,
                          .n_nodes = first->n_nodes,
                          .start_realtime_ns = first->start_realtime_ns,
                          .t_init = first->t_init};
    memcpy(head.job_id, first->job_id, sizeof head.job_id);
    memcpy(head.hostname, first->hostname, sizeof head.hostname);
    return mc_trace_file_put(file, MC_TRACE_HEAD, &head, sizeof head);
}

/* The list of names lies beside the library that this rank has loaded. */
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

/* Without the list, calls are named by numbers. */
static int put_names(mc_trace_file *file, const mc_segment *first)
{
    int error = 0;
    FILE *list = open_names(first);
    char *text = list ? malloc(NAMES_BYTES_MAX) : NULL;
    size_t n = text ? fread(text, 1, NAMES_BYTES_MAX - 8, list) : 0;
    if (n) {
        memset(text + n, ' ', 8);
        error = mc_trace_file_put(file, MC_TRACE_CALLS, text, ((uint32_t)n + 7) & ~7u);
    }
    free(text);
    if (list)
        fclose(list);
    return error;
}

/* Bytes behind a block that begins there; 0: it is not whole. A tracer that is killed while it writes leaves half. */
static uint64_t end_of_block(int fd, uint64_t begin, uint64_t size_bytes)
{
    mc_trace_block block;
    if (pread(fd, &block, sizeof block, (off_t)begin) != (ssize_t)sizeof block || block.magic != MC_TRACE_MAGIC ||
        block.version != MC_TRACE_VERSION || block.size_bytes % 8)
        return 0;
    uint64_t end = begin + sizeof block + block.size_bytes;
    return end <= size_bytes ? end : 0;
}

/* End of the last whole block of a file of this job; 0: it is of another one. */
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

/* Behind what another tracer of this job has written. 0: there is nothing to go on with. */
static int open_again(mc_trace_file *file, const char *path, const mc_segment *first)
{
    struct stat status;
    file->fd = open(path, O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
    if (file->fd < 0)
        return 0;
    if (fstat(file->fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid()) {
        uint64_t end = end_of_blocks(file->fd, (uint64_t)status.st_size, first);
        if (end && (end == (uint64_t)status.st_size || ftruncate(file->fd, (off_t)end) == 0)) {
            file->size_bytes = file->n_pushed = end;
            return 1;
        }
    }
    mc_trace_file_close(file);
    return 0;
}

int mc_trace_file_open(mc_trace_file *file, const mc_segment *first, int is_begun)
{
    char path[MC_PATH_LEN + 64];
    *file = (mc_trace_file){.fd = -1};
    int error = path_of(path, sizeof path, first);
    if (error)
        return error;
    if (is_begun && open_again(file, path, first))
        return 0;
    /* Never overwrite the old file: somebody may be reading it. */
    if (unlink(path) != 0 && errno != ENOENT)
        return errno;
    file->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (file->fd < 0)
        return errno;
    error = put_head(file, first);
    return error ? error : put_names(file, first);
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

int mc_trace_file_put(mc_trace_file *file, uint16_t type, const void *payload, uint32_t size_bytes)
{
    mc_trace_block block = {MC_TRACE_MAGIC, MC_TRACE_VERSION, type, size_bytes, crc_of(payload, size_bytes)};
    struct iovec parts[] = {{&block, sizeof block}, {(void *)(uintptr_t)payload, size_bytes}};
    int error = write_all(file->fd, parts, 2);
    if (!error)
        file->size_bytes += sizeof block + size_bytes;
    else if (ftruncate(file->fd, (off_t)file->size_bytes) != 0)
        return error; /* a reader recognises half a block by its checksum */
    return error;
}

void mc_trace_file_push(mc_trace_file *file, uint64_t now)
{
    if (file->fd < 0 || now < file->t_pushed + PUSH_EVERY_NS || file->n_pushed == file->size_bytes)
        return;
    sync_file_range(file->fd, (off_t)file->n_pushed, (off_t)(file->size_bytes - file->n_pushed), SYNC_FILE_RANGE_WRITE);
    file->n_pushed = file->size_bytes;
    file->t_pushed = now;
}

void mc_trace_file_close(mc_trace_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
}
