/* The full trace: its file format (docs/explain/trace.md), and the thread that writes it. */
#ifndef MPICOLOC_TRACE_H
#define MPICOLOC_TRACE_H

#include "common/mpicoloc.h"

enum {
    MC_TRACE_MAGIC = 0x7274636d, /* "mctr" */
    MC_TRACE_VERSION = 1,
    MC_TRACE_CHUNK = 32768, /* most events in a block */
};

/* Types of blocks. */
enum { MC_TRACE_HEAD = 1, MC_TRACE_CALLS = 2, MC_TRACE_EVENTS = 3 };

/* A file is a sequence of blocks. Each has this header and then its payload, whose size is a multiple of 8 bytes. */
typedef struct mc_trace_block {
    uint32_t magic;
    uint16_t version, type;
    uint32_t size_bytes, crc; /* size of the payload; its CRC-32, as in zlib */
} mc_trace_block;

/* Payload of the first block. The payload of the second block is a JSON list of the names of the calls. */
typedef struct mc_trace_head {
    char job_id[MC_NAME_LEN], hostname[MC_NAME_LEN];
    int32_t world_size, n_nodes;
    int64_t start_realtime_ns; /* wall clock at t_init */
    uint64_t t_init;
} mc_trace_head;

enum { MC_TRACE_T, MC_TRACE_DURATION, MC_TRACE_BYTES, MC_TRACE_KIND, MC_TRACE_N_COLUMNS };

/* A column of n values of `width` bytes each. Values that need more bytes are stored separately as exceptions, and 0
   stands in their places. `width` is chosen so that the column takes the fewest bytes. */
typedef struct mc_trace_column {
    uint32_t width, n_exceptions;
} mc_trace_column;

/* Beginning of the payload of a block of events, all of one rank. The kinds follow (the last 8 bytes of mc_event,
   without the lap). Then, for each column, come the values, the exceptions (8 bytes each), and the indexes of the
   exceptions (4 bytes each). */
typedef struct mc_trace_chunk {
    int32_t rank;
    uint32_t n, n_kinds, _pad;
    uint64_t t_first, t_min, t_max; /* start of the first, the earliest and the latest event */
    int64_t t_step;                 /* added to a value of the first column to get the time since the previous event */
    mc_trace_column columns[MC_TRACE_N_COLUMNS];
} mc_trace_chunk;

/* A thread that empties the rings of the job's ranks on this node. NULL: the job has no full trace. */
typedef struct mc_tracer mc_tracer;
mc_tracer *mc_tracer_start(const char *key);
void mc_tracer_stop(mc_tracer *tracer); /* writes the remaining events, then stops the tracer */

#endif
