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

/* Up to n bytes into `to`, which becomes a string. */
static inline void take_text(bytes *input, char *to, size_t n)
{
    size_t length = input->n < n - 1 ? input->n : n - 1;
    memcpy(to, input->at, length);
    to[length] = '\0';
    input->at += length;
    input->n -= length;
}

/* Overwrite up to n_patches pieces of the area. */
static inline void damage(void *area, size_t size, bytes *input, int n_patches)
{
    for (int i = 0; i < n_patches && input->n; i++) {
        size_t offset = (size_t)take(input, 4) % size, length = (size_t)take(input, 1) % 64 + 1;
        length = length < size - offset ? length : size - offset;
        length = length < input->n ? length : input->n;
        memcpy((char *)area + offset, input->at, length);
        input->at += length;
        input->n -= length;
    }
}

#endif
