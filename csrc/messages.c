/* What a call moved and with whom, into the tables of its thread. */
#include "hooks.h"

/* Messages come in rows to the same peer and of the same size. */
static __thread struct {
    const mc_peer_row *rows;
    mc_peer_row *row;
    int peer;
    uint32_t size_class;
} last;

static mc_peer_row *row_of(int peer, uint64_t bytes)
{
    mc_tables *tables = &mc_self.tables;
    uint32_t size_class = mc_octave(bytes);
    if (last.peer != peer || last.size_class != size_class || last.rows != tables->peers) {
        last.rows = tables->peers;
        last.row = &tables->peers[mc_peer_find(tables, peer, bytes)];
        last.peer = peer;
        last.size_class = size_class;
    }
    return last.row;
}

void mc_message(mc_frame *frame, int peer, uint64_t bytes)
{
    frame->peer = peer;
    if (!frame->is_recorded)
        return;
    mc_peer_row *row = row_of(peer, bytes);
    row->n++;
    row->bytes += bytes;
}

void mc_received(mc_frame *frame, int peer, uint64_t bytes)
{
    frame->peer = peer;
    if (!frame->is_recorded)
        return;
    mc_peer_row *row = row_of(peer, bytes);
    row->n_recv++;
    row->recv_bytes += bytes;
}

void mc_file_access(mc_frame *frame, uint64_t read_bytes, uint64_t written_bytes)
{
    if (!frame->is_recorded)
        return;
    mc_self.tables.head->counters.read_bytes += read_bytes;
    mc_self.tables.head->counters.written_bytes += written_bytes;
}

void mc_request_overflow(mc_frame *frame)
{
    if (frame->is_recorded)
        mc_self.tables.head->counters.n_request_overflow++;
}
