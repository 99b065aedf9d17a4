/* A trace of everything: what lies in its file (docs/explain/trace.md), and who writes it. */
#ifndef MPICOLOC_TRACE_H
#define MPICOLOC_TRACE_H

#include "common/mpicoloc.h"

enum {
    MC_TRACE_MAGIC = 0x7274636d, /* "mctr" */
    MC_TRACE_VERSION = 1,
    MC_TRACE_CHUNK = 32768, /* events of a block at most */
};

/* What a block is. */
enum { MC_TRACE_HEAD = 1, MC_TRACE_CALLS = 2, MC_TRACE_EVENTS = 3 };

/* A file is a row of these, each with its payload behind it: a multiple of 8 bytes. */
typedef struct mc_trace_block {
    uint32_t magic;
    uint16_t version, type;
    uint32_t size_bytes, crc; /* of the payload; CRC-32 as in zlib */
} mc_trace_block;

/* Payload of the first block. The second is the names of the calls, a list in JSON. */
typedef struct mc_trace_head {
    char job_id[MC_NAME_LEN], hostname[MC_NAME_LEN];
    int32_t world_size, n_nodes;
    int64_t start_realtime_ns; /* wall clock at t_init */
    uint64_t t_init;
} mc_trace_head;

enum { MC_TRACE_T, MC_TRACE_DURATION, MC_TRACE_BYTES, MC_TRACE_KIND, MC_TRACE_N_COLUMNS };

/* n values of width bytes, and the exceptions, which are wider. */
typedef struct mc_trace_column {
    uint32_t width, n_exceptions;
} mc_trace_column;

/* Payload of a block of events, all of one rank; behind it the kinds (the last 8 bytes of mc_event, without the lap)
   and then for each column its values, the exceptions (8 bytes each) and their places (4 bytes each). */
typedef struct mc_trace_chunk {
    int32_t rank;
    uint32_t n, n_kinds, _pad;
    uint64_t t_first, t_min, t_max; /* begin of the first, earliest and latest event */
    int64_t t_step; /* to be added to each value of the first column, which then is a time since the event before */
    mc_trace_column columns[MC_TRACE_N_COLUMNS];
} mc_trace_chunk;

/* encoder.c: n events (1 to MC_TRACE_CHUNK) of a rank become a payload, which stays until the next one. */
typedef struct mc_trace_encoder mc_trace_encoder;
mc_trace_encoder *mc_trace_encoder_new(void);
const void *mc_trace_encode(mc_trace_encoder *encoder, int rank, const mc_event *events, uint32_t n,
                            uint32_t *size_bytes);

/* file.c: a new file of blocks; each is in it as a whole, or not at all. Errors are errnos. */
typedef struct mc_trace_file {
    int fd; /* -1: closed */
    uint64_t size_bytes, n_pushed, t_pushed;
} mc_trace_file;

int mc_trace_file_open(mc_trace_file *file, const mc_segment *first);
int mc_trace_file_put(mc_trace_file *file, uint16_t type, const void *payload, uint32_t size_bytes);
void mc_trace_file_push(mc_trace_file *file, uint64_t now); /* towards the disk, now and then, without waiting */
void mc_trace_file_close(mc_trace_file *file);

/* tracer.c: a thread that empties the rings of the job's ranks on this node. NULL: the job wants no such trace. */
typedef struct mc_tracer mc_tracer;
mc_tracer *mc_tracer_start(const char *key);
void mc_tracer_stop(mc_tracer *tracer); /* takes what is left */

#endif
