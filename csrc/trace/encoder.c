/* Turns events into columns whose values take as few bytes as most of them need. */
#define _GNU_SOURCE
#include "trace/trace.h"

#include <stdlib.h>
#include <string.h>

enum {
    N_SLOTS = 2 * MC_TRACE_CHUNK,
    SLOT_SHIFT = 48,
    ROOM = sizeof(mc_trace_chunk) + MC_TRACE_CHUNK * (8 + 8 + 8 + 8 + 2) + 64,
};

typedef struct slot {
    uint64_t kind;
    uint32_t round, i_kind;
} slot;

struct mc_trace_encoder {
    uint32_t round, n_kinds; /* entries of earlier rounds count as free */
    slot slots[N_SLOTS];
    uint64_t kinds[MC_TRACE_CHUNK];
    uint64_t values[MC_TRACE_N_COLUMNS][MC_TRACE_CHUNK];
    uint64_t exceptions[MC_TRACE_CHUNK];
    uint32_t places[MC_TRACE_CHUNK];
    uint8_t out[ROOM];
};

mc_trace_encoder *mc_trace_encoder_new(void)
{
    return calloc(1, sizeof(mc_trace_encoder));
}

static uint32_t find_kind(mc_trace_encoder *e, uint64_t kind)
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

static void split(mc_trace_encoder *e, mc_trace_chunk *chunk, const mc_event *events, uint32_t n)
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

static uint8_t *put_column(mc_trace_encoder *e, mc_trace_column *column, const uint64_t *values, uint32_t n,
                           uint8_t *out)
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
        memcpy(out, &value, sizeof value); /* the next value overwrites the bytes too many */
        out += width;
    }
    *column = (mc_trace_column){width, n_exceptions};
    out = append(out, e->exceptions, n_exceptions * sizeof *e->exceptions);
    return append(out, e->places, n_exceptions * sizeof *e->places);
}

const void *mc_trace_encode(mc_trace_encoder *e, int rank, const mc_event *events, uint32_t n, uint32_t *size_bytes)
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
