#include "guest/mpi/scratch.h"

#include <pthread.h>
#include <stdlib.h>

static pthread_key_t key;
static int have_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static __thread struct {
    void *memory;
    size_t n_bytes;
} own;

static void free_own(void *memory)
{
    free(memory);
    own.memory = NULL; /* destructors of other libraries may still call MPI */
    own.n_bytes = 0;
}

static void make_key(void)
{
    have_key = pthread_key_create(&key, free_own) == 0;
}

void *mc_scratch(size_t n_bytes)
{
    if (own.n_bytes >= n_bytes)
        return own.memory;
    pthread_once(&once, make_key);
    void *memory = have_key ? realloc(own.memory, n_bytes) : NULL;
    if (memory == NULL)
        return NULL;
    own.memory = memory;
    own.n_bytes = n_bytes;
    pthread_setspecific(key, memory);
    return memory;
}
