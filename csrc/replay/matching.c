/* Matching of messages with receives by source, tag and communicator, in MPI's order. Messages between the same two
   ranks match in the order in which they were sent, even if they overtook each other in the network. Receives match in
   the order in which they were posted. */
#include <stdlib.h>
#include <string.h>

#include "replay/sim.h"

enum { RP_FIRST_TABLE = 1024 };

static void open_table(rp_sim *sim, rp_table *table)
{
    table->mask = RP_FIRST_TABLE - 1;
    table->heads = rp_grown(sim, NULL, 0, RP_FIRST_TABLE, sizeof *table->heads);
    table->tails = rp_grown(sim, NULL, 0, RP_FIRST_TABLE, sizeof *table->tails);
    memset(table->heads, 0xff, RP_FIRST_TABLE * sizeof *table->heads);
}

void rp_open_tables(rp_sim *sim)
{
    open_table(sim, &sim->pairs);
    open_table(sim, &sim->unexpected);
    open_table(sim, &sim->posted);
}

static uint64_t pair_hash(int32_t src, int32_t dst)
{
    return rp_mix((uint64_t)(uint32_t)src << 32 | (uint32_t)dst);
}

static uint64_t key_hash(int32_t dst, int32_t src, int32_t tag, int32_t comm)
{
    return rp_mix(pair_hash(src, dst) ^ ((uint64_t)(uint32_t)tag << 32 | (uint32_t)comm));
}

/* A hash table whose entries are chained by the field at offset `next`. */
typedef struct rp_chain {
    rp_table *table;
    char *entries;
    size_t size, next;
    uint64_t (*hash)(const void *entry);
} rp_chain;

static uint32_t *next_of(const rp_chain *chain, uint32_t entry)
{
    return (uint32_t *)(void *)(chain->entries + entry * chain->size + chain->next);
}

static void append_entry(const rp_chain *chain, uint32_t entry)
{
    rp_table *t = chain->table;
    uint32_t at = (uint32_t)chain->hash(chain->entries + entry * chain->size) & t->mask;
    *next_of(chain, entry) = RP_NIL;
    if (t->heads[at] == RP_NIL)
        t->heads[at] = entry;
    else
        *next_of(chain, t->tails[at]) = entry;
    t->tails[at] = entry;
}

static void grow_table(rp_sim *sim, const rp_chain *chain)
{
    rp_table *t = chain->table, old = *t;
    uint32_t n_old = old.mask + 1, n = 2 * n_old;
    t->heads = rp_grown(sim, NULL, 0, n, sizeof *t->heads);
    t->tails = rp_grown(sim, NULL, 0, n, sizeof *t->tails);
    t->mask = n - 1;
    memset(t->heads, 0xff, n * sizeof *t->heads);
    for (uint32_t at = 0; at < n_old; at++) {
        for (uint32_t i = old.heads[at], next; i != RP_NIL; i = next) {
            next = *next_of(chain, i);
            append_entry(chain, i);
        }
    }
    free(old.heads);
    free(old.tails);
    sim->bytes_now -= 2 * n_old * sizeof *t->heads;
}

static void insert_entry(rp_sim *sim, const rp_chain *chain, uint32_t entry)
{
    if (++chain->table->n > chain->table->mask)
        grow_table(sim, chain);
    append_entry(chain, entry);
}

/* Remove an entry; `before` is its predecessor in the chain, or RP_NIL. */
static void unlink_entry(const rp_chain *chain, uint32_t at, uint32_t before, uint32_t entry)
{
    rp_table *t = chain->table;
    uint32_t next = *next_of(chain, entry);
    if (before == RP_NIL)
        t->heads[at] = next;
    else
        *next_of(chain, before) = next;
    if (next == RP_NIL)
        t->tails[at] = before;
    t->n--;
}

static void remove_entry(const rp_chain *chain, uint32_t entry)
{
    uint32_t at = (uint32_t)chain->hash(chain->entries + entry * chain->size) & chain->table->mask, before = RP_NIL;
    for (uint32_t i = chain->table->heads[at]; i != entry; i = *next_of(chain, i))
        before = i;
    unlink_entry(chain, at, before, entry);
}

static uint64_t hash_of_pair(const void *entry)
{
    const rp_message *m = entry;
    return pair_hash(m->src, m->dst);
}

static uint64_t hash_of_message(const void *entry)
{
    const rp_message *m = entry;
    return key_hash(m->dst, m->src, m->tag, m->comm);
}

static uint64_t hash_of_receive(const void *entry)
{
    const rp_receive *r = entry;
    return key_hash(r->rank, r->src, r->tag, r->comm);
}

static rp_chain pairs_of(rp_sim *sim)
{
    return (rp_chain){&sim->pairs, (char *)sim->messages, sizeof(rp_message), offsetof(rp_message, next_pair),
                      hash_of_pair};
}

static rp_chain unexpected_of(rp_sim *sim)
{
    return (rp_chain){&sim->unexpected, (char *)sim->messages, sizeof(rp_message), offsetof(rp_message, next_key),
                      hash_of_message};
}

static rp_chain posted_of(rp_sim *sim)
{
    return (rp_chain){&sim->posted, (char *)sim->receives, sizeof(rp_receive), offsetof(rp_receive, next_key),
                      hash_of_receive};
}

/* Make the message follow the last message of its pair of ranks that is still in flight. */
void rp_follow(rp_sim *sim, uint32_t message)
{
    rp_chain pairs = pairs_of(sim);
    rp_message *m = &sim->messages[message];
    uint32_t at = (uint32_t)pair_hash(m->src, m->dst) & sim->pairs.mask, before = RP_NIL;
    m->follower = RP_NIL;
    m->has_leader = 0;
    for (uint32_t i = sim->pairs.heads[at]; i != RP_NIL; before = i, i = sim->messages[i].next_pair) {
        if (sim->messages[i].src == m->src && sim->messages[i].dst == m->dst) {
            sim->messages[i].follower = message;
            m->has_leader = 1;
            unlink_entry(&pairs, at, before, i);
            break;
        }
    }
    insert_entry(sim, &pairs, message);
}

static int is_for(const rp_receive *r, const rp_message *m)
{
    return r->comm == m->comm && (r->src == RP_ANY || r->src == m->src) && (r->tag == RP_ANY || r->tag == m->tag);
}

/* Join a message and its receive. */
static void match(rp_sim *sim, uint32_t message, uint32_t receive)
{
    rp_message *m = &sim->messages[message];
    rp_receive r = sim->receives[receive];
    sim->job_states[m->job].n_receives--;
    if (m->phase == RP_REQUEST) {
        m->receive = receive;
        m->phase = RP_CLEARANCE;
        m->left_bytes = m->missing_bytes = sim->set.control_bytes;
        rp_send_at(sim, message, sim->now);
        return;
    }
    rp_free_receive(sim, receive);
    rp_free_message(sim, message);
    rp_complete(sim, r.rank, r.slot, RP_RECEIVED);
}

/* Remove and return the first posted receive that the message matches. */
static uint32_t take_receive(rp_sim *sim, const rp_message *m)
{
    rp_chain posted = posted_of(sim);
    rp_rank *rank = &sim->ranks[m->dst];
    uint32_t at = (uint32_t)key_hash(m->dst, m->src, m->tag, m->comm) & sim->posted.mask;
    uint32_t exact = sim->posted.heads[at], before = RP_NIL, any = rank->any_head, before_any = RP_NIL;
    for (; exact != RP_NIL; before = exact, exact = sim->receives[exact].next_key)
        if (sim->receives[exact].rank == m->dst && is_for(&sim->receives[exact], m))
            break;
    for (; any != RP_NIL; before_any = any, any = sim->receives[any].next_any)
        if (is_for(&sim->receives[any], m))
            break;
    if (any != RP_NIL && (exact == RP_NIL || sim->receives[any].serial < sim->receives[exact].serial)) {
        uint32_t next = sim->receives[any].next_any;
        if (before_any == RP_NIL)
            rank->any_head = next;
        else
            sim->receives[before_any].next_any = next;
        if (next == RP_NIL)
            rank->any_tail = before_any;
        return any;
    }
    if (exact != RP_NIL)
        unlink_entry(&posted, at, before, exact);
    return exact;
}

static void keep_unexpected(rp_sim *sim, uint32_t message)
{
    rp_chain unexpected = unexpected_of(sim);
    rp_message *m = &sim->messages[message];
    rp_rank *rank = &sim->ranks[m->dst];
    insert_entry(sim, &unexpected, message);
    m->next_arrived = RP_NIL;
    m->prev_arrived = rank->arrived_tail;
    if (rank->arrived_tail == RP_NIL)
        rank->arrived_head = message;
    else
        sim->messages[rank->arrived_tail].next_arrived = message;
    rank->arrived_tail = message;
    sim->job_states[m->job].n_unexpected++;
}

void rp_envelope(rp_sim *sim, uint32_t message)
{
    while (message != RP_NIL) {
        rp_message *m = &sim->messages[message];
        uint32_t follower = m->follower;
        if (follower == RP_NIL) {
            rp_chain pairs = pairs_of(sim);
            remove_entry(&pairs, message);
        } else {
            sim->messages[follower].has_leader = 0;
        }
        uint32_t receive = take_receive(sim, m);
        if (receive == RP_NIL)
            keep_unexpected(sim, message);
        else
            match(sim, message, receive);
        /* A match can make a rank send more messages. The index of the follower stays valid even then, because the
           follower is in flight. */
        message = follower != RP_NIL && sim->messages[follower].has_come ? follower : RP_NIL;
    }
}

/* Among the arrived messages that match the receive, remove and return the first. */
static uint32_t take_unexpected(rp_sim *sim, const rp_receive *r)
{
    rp_chain unexpected = unexpected_of(sim);
    rp_rank *rank = &sim->ranks[r->rank];
    uint32_t found;
    if (r->src == RP_ANY || r->tag == RP_ANY) {
        found = rank->arrived_head;
        while (found != RP_NIL && !is_for(r, &sim->messages[found]))
            found = sim->messages[found].next_arrived;
    } else {
        found = sim->unexpected.heads[(uint32_t)hash_of_receive(r) & sim->unexpected.mask];
        while (found != RP_NIL && !(sim->messages[found].dst == r->rank && is_for(r, &sim->messages[found])))
            found = sim->messages[found].next_key;
    }
    if (found == RP_NIL)
        return RP_NIL;
    remove_entry(&unexpected, found);
    rp_message *m = &sim->messages[found];
    *(m->prev_arrived == RP_NIL ? &rank->arrived_head : &sim->messages[m->prev_arrived].next_arrived) = m->next_arrived;
    *(m->next_arrived == RP_NIL ? &rank->arrived_tail : &sim->messages[m->next_arrived].prev_arrived) = m->prev_arrived;
    sim->job_states[m->job].n_unexpected--;
    return found;
}

void rp_post_receive(rp_sim *sim, uint32_t receive)
{
    rp_receive *r = &sim->receives[receive];
    rp_rank *rank = &sim->ranks[r->rank];
    sim->job_states[rank->job].n_receives++;
    uint32_t message = take_unexpected(sim, r);
    if (message != RP_NIL) {
        match(sim, message, receive);
    } else if (r->src == RP_ANY || r->tag == RP_ANY) {
        r->next_any = RP_NIL;
        *(rank->any_head == RP_NIL ? &rank->any_head : &sim->receives[rank->any_tail].next_any) = receive;
        rank->any_tail = receive;
    } else {
        rp_chain posted = posted_of(sim);
        insert_entry(sim, &posted, receive);
    }
}
