/* What the harnesses share: valid structures are damaged by the fuzzer's bytes, so an empty input is a valid one. */
#ifndef MC_FUZZ_H
#define MC_FUZZ_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct bytes {
    const uint8_t *at;
    size_t n;
} bytes;

/* The next n bytes as a number, 0 past the end. */
static inline uint64_t take(bytes *input, size_t n)
{
    uint64_t value = 0;
    for (size_t i = 0; i < n && input->n; i++, input->n--)
        value |= (uint64_t)*input->at++ << (8 * i);
    return value;
}

/* The next n bytes, or as many as there are. */
static inline bytes take_part(bytes *input, size_t n)
{
    bytes part = {input->at, n < input->n ? n : input->n};
    input->at += part.n;
    input->n -= part.n;
    return part;
}

/* Up to n bytes into `to`, which becomes a string. */
static inline void take_text(bytes *input, char *to, size_t n)
{
    bytes part = take_part(input, n - 1);
    memcpy(to, part.at, part.n);
    to[part.n] = '\0';
}

/* Overwrite up to n_patches pieces of the area. */
static inline void damage(void *area, size_t size, bytes *input, int n_patches)
{
    for (int i = 0; i < n_patches && input->n; i++) {
        size_t offset = (size_t)take(input, 4) % size, length = (size_t)take(input, 1) % 64 + 1;
        bytes part = take_part(input, length < size - offset ? length : size - offset);
        memcpy((char *)area + offset, part.at, part.n);
    }
}

#endif
