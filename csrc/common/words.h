/* Access to structs of 64-bit words that one process writes while others read them: word by word, in order. */
#ifndef MPICOLOC_WORDS_H
#define MPICOLOC_WORDS_H

#include <stddef.h>
#include <stdint.h>

/* Each store is a release: a reader that sees a word also sees the words before it. */
static inline void mc_words_store(void *to, const void *from, size_t n_bytes)
{
    uint64_t *words = to;
    for (size_t i = 0; i < n_bytes / sizeof *words; i++)
        __atomic_store_n(&words[i], ((const uint64_t *)from)[i], __ATOMIC_RELEASE);
}

/* Each load is an acquire: words that are loaded later are at least as new. */
static inline void mc_words_load(void *to, const void *from, size_t n_bytes)
{
    const uint64_t *words = from;
    for (size_t i = 0; i < n_bytes / sizeof *words; i++)
        ((uint64_t *)to)[i] = __atomic_load_n(&words[i], __ATOMIC_ACQUIRE);
}

#endif
