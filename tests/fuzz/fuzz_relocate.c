/* Code of other processes: a piece of a program with bytes of it replaced, in memory of exactly its size. */
#include "fuzz.h"

#include "agent/relocation/polling.h"
#include "agent/relocation/relocate.h"
#include "common/mpicoloc.h"

enum { N_COUNT = 9, N_FOUND = 16 };

static const uint8_t program[] = {
    0xb8, 0x01, 0x02, 0x03, 0x04,                               /* mov */
    0x48, 0x8d, 0x05, 0x10, 0x20, 0x00, 0x00,                   /* lea (%rip) */
    0xc4, 0xe2, 0xf5, 0xb8, 0x05, 0x10, 0x20, 0x00, 0x00,       /* vfmadd231pd (%rip) */
    0x62, 0xf1, 0xf5, 0x48, 0x58, 0x43, 0x01,                   /* vaddpd of 64 bytes */
    0xf2, 0x0f, 0x58, 0x44, 0xc8, 0x08,                         /* addsd */
    0xc7, 0x05, 0x10, 0x00, 0x00, 0x00, 0x07, 0x00, 0x00, 0x00, /* movl (%rip) */
    0x48, 0x81, 0xc1, 0x00, 0x01, 0x00, 0x00,                   /* add */
    0x0f, 0x85, 0x02, 0x00, 0x00, 0x00,                         /* jne */
    0xeb, 0x03,                                                 /* jmp */
    0x66, 0x66, 0x90,                                           /* nop */
    0x81, 0x7b, 0x08, 0x00, 0x01, 0x00, 0x00,                   /* cmpl */
    0xc5, 0xfb, 0xc2, 0xd2, 0x05,                               /* vcmpnltsd */
    0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0x00, 0x00, 0x00,       /* mov %fs: */
    0x75, 0xb0,                                                 /* jne */
    0xc3,                                                       /* ret */
};

static void expect(int condition)
{
    if (!condition)
        abort();
}

/* The jump lies in the instruction; nothing but it changes in the word; the stub ends with the jump back. */
static void check(const mc_patch_code *patch, const uint8_t *code, uint64_t base, uint64_t stub)
{
    uint64_t in_word = patch->address - patch->word_address;
    int32_t there, back;
    expect(patch->word_address % MC_WORD_BYTES == 0 && in_word + MC_JUMP_BYTES <= MC_WORD_BYTES);
    expect(patch->n_bytes >= MC_JUMP_BYTES && patch->n_bytes <= 15);
    expect(patch->n_stub == N_COUNT + patch->n_bytes + MC_JUMP_BYTES && patch->n_stub <= MC_STUB_MAX);
    expect(memcmp(patch->before, code + (patch->word_address - base), MC_WORD_BYTES) == 0);
    for (uint64_t i = 0; i < MC_WORD_BYTES; i++)
        expect((i >= in_word && i < in_word + MC_JUMP_BYTES) || patch->before[i] == patch->after[i]);
    memcpy(&there, patch->after + in_word + 1, sizeof there);
    memcpy(&back, patch->stub + patch->n_stub - sizeof back, sizeof back);
    expect(patch->after[in_word] == 0xe9 && patch->stub[patch->n_stub - MC_JUMP_BYTES] == 0xe9);
    expect(patch->address + MC_JUMP_BYTES + (uint64_t)(int64_t)there == stub);
    expect(stub + patch->n_stub + (uint64_t)(int64_t)back == patch->address + patch->n_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static mc_decoder *decoder;
    bytes input = {data, size};
    uint64_t found[N_FOUND], base = (take(&input, 6) & ~UINT64_C(15)) + take(&input, 1) % 16;
    uint64_t from = base + take(&input, 1), stub = base + (uint64_t)(int64_t)(int32_t)take(&input, 4);
    size_t n = sizeof program - take(&input, 1) % sizeof program;
    uint8_t *code = malloc(n);
    mc_patch_code patch;
    expect(code && (decoder || (decoder = mc_decoder_new())));
    memcpy(code, program, n);
    damage(code, n, &input, 8);
    int n_found = mc_replaceable(decoder, code, n, base, from, N_FOUND, found);
    expect(n_found >= 0 && n_found <= N_FOUND);
    for (int i = 0; i < n_found; i++) {
        /* With the stub at the instruction itself nothing is out of reach. */
        expect(mc_relocate(decoder, code, n, base, found[i], found[i], -64, &patch) == MC_OK);
        check(&patch, code, base, found[i]);
    }
    int is_polling = mc_polls(decoder, code, n, base, from);
    expect(is_polling == 0 || is_polling == 1);
    for (uint64_t at = base - 1; at <= base + n; at++) {
        int is_first = mc_replaceable(decoder, code, n, base, at, 1, found) == 1 && found[0] == at;
        expect((mc_relocate(decoder, code, n, base, at, at, -64, &patch) == MC_OK) == is_first);
        if (mc_relocate(decoder, code, n, base, at, stub, -64, &patch) == MC_OK)
            check(&patch, code, base, stub);
    }
    free(code);
    return 0;
}
