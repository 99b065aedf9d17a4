/* Pools grow by doubling, so memory follows what is under way at once. */
#include <stdlib.h>
#include <string.h>

#include "replay/sim.h"

static void count_bytes(rp_sim *sim, size_t n)
{
    sim->bytes_now += n;
    if (sim->bytes_now > sim->bytes_peak)
        sim->bytes_peak = sim->bytes_now;
}

/* Whole cache lines: a link, a packet and an input lane take one each. */
static void *lines(size_t n, size_t size)
{
    size_t room;
    if (__builtin_mul_overflow(n ? n : 1, size, &room) || room > SIZE_MAX - 64)
        return NULL;
    return aligned_alloc(64, (room + 63) / 64 * 64);
}

void *rp_zeroed(rp_sim *sim, size_t n, size_t size)
{
    void *made = sim->n_kept < RP_N_KEPT ? lines(n, size) : NULL;
    if (made == NULL)
        longjmp(sim->no_memory, 1);
    sim->kept[sim->n_kept++] = made;
    memset(made, 0, n * size);
    count_bytes(sim, n * size);
    return made;
}

void *rp_grown(rp_sim *sim, void *old, size_t n_old, size_t n_new, size_t size)
{
    void *made = n_new < RP_NIL ? lines(n_new, size) : NULL;
    if (made == NULL)
        longjmp(sim->no_memory, 1);
    count_bytes(sim, n_new * size);
    if (n_old)
        memcpy(made, old, n_old * size);
    free(old);
    sim->bytes_now -= n_old * size;
    return made;
}

/* The i-th free number of n, a power of two; tests have them in another order. */
static uint32_t nth_free(const rp_sim *sim, uint32_t i, uint32_t n)
{
    uint32_t step = sim->set.shuffle ? (uint32_t)rp_mix(sim->set.shuffle) | 1 : 1;
    return i * step & (n - 1);
}

/* A number of a pool: from its list of free ones, else the pool grows. The list goes through `next`. */
#define RP_DEFINE_POOL(name, type, array, room, first_free, next) \
    static void grow_##name##s(rp_sim *sim) \
    { \
        uint32_t n = sim->room ? 2 * sim->room : 1024; \
        sim->array = rp_grown(sim, sim->array, sim->room, n, sizeof(type)); \
        for (uint32_t i = n - sim->room; i-- > 0;) { \
            uint32_t number = sim->room + nth_free(sim, i, n - sim->room); \
            sim->array[number].next = sim->first_free; \
            sim->first_free = number; \
        } \
        sim->room = n; \
    } \
    uint32_t rp_new_##name(rp_sim *sim) \
    { \
        if (sim->first_free == RP_NIL) \
            grow_##name##s(sim); \
        uint32_t i = sim->first_free; \
        sim->first_free = sim->array[i].next; \
        return i; \
    } \
    void rp_free_##name(rp_sim *sim, uint32_t i) \
    { \
        sim->array[i].next = sim->first_free; \
        sim->first_free = i; \
    }

RP_DEFINE_POOL(packet, rp_packet, packets, n_packet_room, free_packet, next)
RP_DEFINE_POOL(message, rp_message, messages, n_message_room, free_message, next)
RP_DEFINE_POOL(receive, rp_receive, receives, n_receive_room, free_receive, next_key)
