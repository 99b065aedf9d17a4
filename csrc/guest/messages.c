/* What a call moved and with whom, into the tables of its thread: the slow path. */
#include "guest/hooks.h"

__thread mc_last_message mc_message_used;

mc_peer_row *mc_find_message_row(int peer, uint32_t size_class)
{
    mc_tables *tables = &mc_self.tables;
    mc_peer_row *row = &tables->peers[mc_peer_find(tables, peer, size_class)];
    mc_message_used = (mc_last_message){tables->peers, row, peer, size_class};
    return row;
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
