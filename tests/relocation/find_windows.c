/* Writes the windows of a piece of code. Standard input: its address, its size, the number of functions (8 bytes each),
   its bytes, begin and end of each function. Standard error: the counts below. */
#include "agent/relocation/encoding.h"
#include "common/mpicoloc.h"
#include "windows.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
#define COUNTS(X) \
    X(instructions) X(long) X(aligned) X(movable) X(flags_dead) X(admitted) X(stopped_by_fork) X(stopped_by_jump) \
    X(stopped_by_call) X(stopped_by_return) X(stopped_by_other) X(loops) X(loops_with_long) X(loops_with_admitted)
/* clang-format on */

#define MEMBER(name) uint64_t n_##name;
static struct {
    COUNTS(MEMBER)
} sums;

enum { N_SPAN_MAX = 1 << 16, ONE_OF_CHECKED = 16, CONTRADICTION = 2, N_CUT = N_WINDOW_MAX - 2, N_FAR = 4096 };

typedef struct code_view {
    uint8_t *bytes;
    uint64_t base, n;
} code_view;

typedef struct row {
    uint64_t at, flags_end; /* 0: the flags are not dead; 1: unknown */
    uint64_t walk_end;      /* where that is decided */
    mc_instruction it;
    const uint8_t *bytes;
    uint8_t is_admitted;
} row;

static row rows[N_SPAN_MAX];
static mc_decoder *decoder;

static void *get(size_t size)
{
    void *to = malloc(size ? size : 1);
    if (!to || (size && fread(to, size, 1, stdin) != 1))
        exit(1);
    return to;
}

static int decode_span(const code_view *code, const uint64_t *span)
{
    int n = 0;
    for (uint64_t at = span[0]; at < span[1] && n < N_SPAN_MAX; at += rows[n++].it.n_bytes) {
        rows[n] = (row){.at = at, .bytes = code->bytes + (at - code->base)};
        if (mc_decode(decoder, rows[n].bytes, code->n - (at - code->base), at, &rows[n].it) != MC_OK)
            break;
    }
    return n;
}

static int is_call(const row *r)
{
    return r->bytes[0] == 0xe8 || (r->bytes[0] == 0xff && (r->bytes[1] & 0x38) == 0x10);
}

static int is_return(const row *r)
{
    return r->bytes[0] == 0xc3 || (r->bytes[0] == 0xf3 && r->bytes[1] == 0xc3);
}

static void count_stop(const row *r)
{
    if (r->it.traits & MC_FORKS)
        sums.n_stopped_by_fork++;
    else if (r->it.traits & MC_JUMPS)
        sums.n_stopped_by_jump++;
    else if (is_call(r))
        sums.n_stopped_by_call++;
    else if (is_return(r))
        sums.n_stopped_by_return++;
    else
        sums.n_stopped_by_other++;
}

/* The rules, backwards from the function's end. */
static void judge(int n)
{
    uint64_t flags_end = 1, n_switched = __builtin_cpu_supports("avx") ? 16 : 8;
    int stop = n;
    for (int i = n - 1; i >= 0; i--) {
        row *r = &rows[i];
        if (!(r->it.traits & MC_SPARES_FLAGS))
            flags_end = 0, stop = i;
        else if (r->it.traits & MC_SETS_FLAGS)
            flags_end = r->at + r->it.n_bytes;
        r->flags_end = flags_end;
        r->walk_end = flags_end > 1 ? flags_end : stop < n ? rows[stop].at : rows[n - 1].at;
        if (r->it.n_bytes < MC_JUMP_BYTES)
            continue;
        int moves = (r->it.traits & MC_MOVES) != 0, is_aligned = r->at % n_switched + MC_JUMP_BYTES <= n_switched;
        r->is_admitted = moves && is_aligned && flags_end > 1;
        sums.n_long++;
        sums.n_aligned += (uint64_t)is_aligned;
        sums.n_movable += (uint64_t)moves;
        sums.n_flags_dead += flags_end > 1;
        sums.n_admitted += r->is_admitted;
        if (!flags_end && stop < n)
            count_stop(&rows[stop]);
    }
}

/* Of the product's functions, which look at one place; and they at each other. */
static void compare(const code_view *code, const row *r)
{
    mc_patch_code patch;
    uint64_t found;
    if (r->walk_end > r->at + N_FAR) /* each look would walk that far */
        return;
    int is_admitted = mc_relocate(decoder, code->bytes, code->n, code->base, r->at, r->at, -8, &patch) == MC_OK;
    int is_found = mc_replaceable(decoder, code->bytes, code->n, code->base, r->at, 1, &found) == 1 && found == r->at;
    if (is_admitted != is_found || (r->flags_end != 1 && is_admitted != r->is_admitted))
        exit(CONTRADICTION);
}

/* Of the thread that runs the window, which is ours. */
static int is_of_a_thread(const row *r)
{
    for (int i = 0; i < r->it.n_bytes && mc_encoding_prefixes(r->bytes + i, 1, &(uint8_t){0}); i++)
        if (r->bytes[i] == 0x64 || r->bytes[i] == 0x65)
            return 1;
    return 0;
}

static void put(const row *r, const row *end)
{
    static const uint8_t test_eax[] = {0x85, 0xc0};
    window w = {.remainder = r->at % 64};
    const row *last = r;
    while (last < end && last->at < r->flags_end && last->at + last->it.n_bytes - r->at <= N_CUT &&
           !is_of_a_thread(last))
        last++;
    w.n_bytes = (uint8_t)(last[-1].at + last[-1].it.n_bytes - r->at);
    w.is_cut = r->at + w.n_bytes < r->flags_end;
    memcpy(w.bytes, r->bytes, w.n_bytes);
    if (w.is_cut) {
        memcpy(w.bytes + w.n_bytes, test_eax, sizeof test_eax);
        w.n_bytes += sizeof test_eax;
    }
    if (!write_window(&w))
        exit(1);
}

/* Innermost loops without calls, as backward jumps tell. */
static void count_loop(int i_jump, uint64_t target)
{
    int has_long = 0, has_admitted = 0;
    for (int i = i_jump; i >= 0 && rows[i].at >= target; i--) {
        const row *r = &rows[i];
        if (i < i_jump && (is_call(r) || (r->it.target && r->it.target <= r->at)))
            return;
        has_long |= r->it.n_bytes >= MC_JUMP_BYTES && !(r->it.traits & (MC_FORKS | MC_JUMPS));
        has_admitted |= r->is_admitted;
    }
    sums.n_loops++;
    sums.n_loops_with_long += (uint64_t)has_long;
    sums.n_loops_with_admitted += (uint64_t)has_admitted;
}

static uint64_t target_of(const row *r)
{
    if (r->bytes[0] >> 4 == 7 && r->it.traits & MC_FORKS)
        return r->at + 2 + (uint64_t)(int8_t)r->bytes[1];
    int32_t displacement;
    if (!(r->it.traits & MC_FORKS) || r->bytes[0] != 0x0f)
        return r->it.target;
    memcpy(&displacement, r->bytes + 2, sizeof displacement);
    return r->at + 6 + (uint64_t)(int64_t)displacement;
}

static void look_at(const code_view *code, const uint64_t *span)
{
    static uint64_t n_seen;
    int n = decode_span(code, span);
    sums.n_instructions += (uint64_t)n;
    judge(n);
    for (int i = 0; i < n; i++) {
        row *r = &rows[i];
        r->it.target = target_of(r);
        if (r->it.traits & (MC_FORKS | MC_JUMPS) && r->it.target <= r->at && r->it.target >= span[0])
            count_loop(i, r->it.target);
        if (r->it.n_bytes >= MC_JUMP_BYTES && n_seen++ % ONE_OF_CHECKED == 0)
            compare(code, r);
        if (r->is_admitted)
            put(r, rows + n);
    }
}

int main(void)
{
    uint64_t *head = get(3 * sizeof *head);
    code_view code = {NULL, head[0], head[1]};
    code.bytes = get(code.n);
    uint64_t *spans = get(head[2] * 2 * sizeof *spans);
    if (!(decoder = mc_decoder_new()))
        return 1;
    for (uint64_t i = 0; i < head[2]; i++)
        if (spans[2 * i] >= code.base && spans[2 * i + 1] <= code.base + code.n)
            look_at(&code, spans + 2 * i);
#define PRINT(name) fprintf(stderr, #name " %" PRIu64 "\n", sums.n_##name);
    COUNTS(PRINT)
    mc_decoder_free(decoder);
    return 0;
}
