/* Writing a job's own slot, and reading other slots while their owners write them. */
#include "common/board/board.h"

#include "common/words.h"

enum { N_READ_TRIES = 32 };

static const uint64_t LONGEST_SHUTTER_NS = 1000000000u;

#define LOAD(field) __atomic_load_n(&(field), __ATOMIC_ACQUIRE)
#define STORE(field, value) __atomic_store_n(&(field), value, __ATOMIC_RELEASE)

/* Between the two stores of the sequence number, the fields are stored with release and loaded with acquire: a reader
   that sees a new field also sees the odd number, even on processors that reorder accesses. The reader's last load of
   the number can be relaxed, because it follows acquire loads. Fences would do too, but TSan does not support them. */
void mc_slot_reserve(mc_slot *slot, const mc_reservation *reservation)
{
    /* The number is odd already if the previous owner died while writing. */
    uint64_t odd = __atomic_load_n(&slot->seq, __ATOMIC_RELAXED) | 1;
    __atomic_store_n(&slot->seq, odd, __ATOMIC_RELAXED);
    mc_words_store(&slot->reservation, reservation, sizeof *reservation);
    STORE(slot->seq, odd + 1);
}

int mc_slot_reservation(mc_slot *slot, mc_reservation *out)
{
    for (int i = 0; i < N_READ_TRIES; i++) {
        uint64_t before = LOAD(slot->seq);
        mc_words_load(out, &slot->reservation, sizeof *out);
        if (!(before & 1) && __atomic_load_n(&slot->seq, __ATOMIC_RELAXED) == before)
            return MC_OK;
    }
    return MC_E_GONE;
}

void mc_slot_book(mc_slot *slot, const mc_booking *booking)
{
    if (LOAD(slot->booking.t0) == booking->t0 && LOAD(slot->booking.t1) == booking->t1) {
        /* Do not remove the old booking first, because another job could then book the time before the new booking is
           stored. */
        STORE(slot->booking.is_firm, booking->is_firm);
        return;
    }
    STORE(slot->booking.t0, 0);
    STORE(slot->booking.t1, booking->t1);
    STORE(slot->booking.is_firm, booking->is_firm);
    __atomic_store_n(&slot->booking.t0, booking->t0, __ATOMIC_SEQ_CST);
}

int mc_slot_booking(mc_slot *slot, mc_booking *out)
{
    out->t0 = __atomic_load_n(&slot->booking.t0, __ATOMIC_SEQ_CST);
    out->t1 = LOAD(slot->booking.t1);
    out->is_firm = LOAD(slot->booking.is_firm);
    int is_whole = out->t0 != 0 && __atomic_load_n(&slot->booking.t0, __ATOMIC_SEQ_CST) == out->t0;
    return is_whole && out->t1 > out->t0 && out->t1 - out->t0 <= LONGEST_SHUTTER_NS ? MC_OK : MC_E_GONE;
}

void mc_slot_acknowledge(mc_slot *slot, const mc_ack *ack)
{
    mc_ack unnumbered = *ack;
    unnumbered.epoch = 0;
    mc_words_store(&slot->ack, &unnumbered, sizeof unnumbered);
    STORE(slot->ack.epoch, ack->epoch);
}

int mc_slot_ack(mc_slot *slot, uint64_t epoch, mc_ack *out)
{
    mc_words_load(out, &slot->ack, sizeof *out);
    return out->epoch == epoch && LOAD(slot->ack.epoch) == epoch ? MC_OK : MC_E_GONE;
}

uint64_t mc_instant_ns(uint64_t i_instant, uint64_t period_ns)
{
    return i_instant * period_ns + (mc_scattered(i_instant) >> 8) % (period_ns * 3 / 10 + 1);
}
