#define _GNU_SOURCE
#include "guest/hooks.h"
#include "guest/count/patch.h"

#include "common/counters/tally.h"
#include "common/ring.h"

#include <string.h>

enum {
    N_ALWAYS_TIMED = 16,         /* time this many first calls of a site, because they differ from later calls */
    SAMPLE_EVERY_MOST = 512,     /* largest mc_thread.every */
    TIMED_TOO_SOON_NS = 25000,   /* time fewer calls if timed calls are closer together than this, */
    TIMED_TOO_LATE_NS = 2000000, /* and more if over this; far enough apart that no co-runner changes `every` */
    TIMED_BETWEEN_CHOICES = 256,
};

__thread uint64_t mc_thread_paused_ns;
int mc_is_chained;
__thread int mc_is_ending;
__thread mc_thread mc_self;

static inline __attribute__((always_inline)) int enter(mc_thread *self, mc_frame *frame, uint32_t call, void *site,
                                                       const char *stack)
{
    /* The stack grows downwards, so a call that MPI makes itself has its frame below the frame of the outermost call.
       If the frame is not below, an error handler has left MPI by longjmp or a C++ exception. */
    if (self->outer && stack < self->outer)
        return 0;
    self->outer = stack;
    frame->is_recorded = 0;
    frame->weight = 1;
    if (!__atomic_load_n(&mc_recording, __ATOMIC_ACQUIRE))
        return 1;
    if (!self->tables.head && !mc_lane_claim()) {
        __atomic_fetch_add(&mc_the_segment->counters.n_lane_overflow, 1, __ATOMIC_RELAXED);
        return 1;
    }
    frame->is_recorded = 1;
    frame->call = call;
    frame->site = site;
    frame->peer = -1;
    frame->message = 0;
    frame->paused_ns = mc_thread_paused_ns;
    frame->t_enter = mc_clock_read(&self->clock);
    return 1;
}

/* Saturates at 0, because the clock source can step back. */
static uint64_t since(uint64_t begin, uint64_t end)
{
    return end > begin ? end - begin : 0;
}

static int is_counting(uint64_t t)
{
    return __builtin_expect(t < __atomic_load_n(&mc_the_segment->sampling.counts_until, __ATOMIC_RELAXED), 0);
}

/* Update the tally when a call begins or ends at t. Returns the time this took, which is our overhead, not the
   program's time. */
static __attribute__((cold, noinline)) uint64_t count(mc_thread *self, uint64_t t, int was_inside, uint64_t state)
{
    uint64_t span = __atomic_load_n(&mc_the_segment->sampling.counts_until, __ATOMIC_RELAXED);
    uint64_t paused_ns = mc_thread_paused_ns;
    mc_tally_note(&self->tables.head->tally, span, was_inside, state);
    return since(mc_thread_paused_ns - paused_ns, since(t, mc_clock_read(&self->clock)));
}

/* Shift both marks by our own overhead, so that it does not count as the program's time. */
static void pass_over(mc_lane_head *head, uint64_t lost_ns)
{
    head->calls.t_last += lost_ns;
    head->units.t_last += head->units.t_last ? lost_ns : 0;
}

/* Mark the thread as inside MPI, which lasts until calls.t_last is later than t_enter. */
static inline __attribute__((always_inline)) int begin_call(mc_thread *self, mc_frame *frame)
{
    mc_lane_head *head = self->tables.head;
    if (is_counting(frame->t_enter)) {
        uint64_t lost_ns = count(self, frame->t_enter, head->t_enter > head->calls.t_last, MC_TALLY_INSIDE);
        pass_over(head, lost_ns);
        frame->t_enter += lost_ns;
    }
    if (__builtin_expect(__atomic_load_n(&mc_patch_has_jumps, __ATOMIC_RELAXED), 0))
        mc_patch_check_lease(frame->t_enter);
    head->t_enter = frame->t_enter;
    return 1;
}

int mc_enter_timed(mc_frame *frame, uint32_t call, void *site, const char *stack)
{
    mc_thread *self = &mc_self;
    if (!enter(self, frame, call, site, stack))
        return 0;
    return frame->is_recorded ? begin_call(self, frame) : 1;
}

static mc_site_row *find_site(mc_thread *self, uint32_t call, void *site)
{
    mc_site_hit *hit = &self->hits[mc_hit_index(site)];
    if (__builtin_expect(hit->site == site && (hit->call & ~(uint32_t)MC_COUNTABLE) == call, 1))
        return hit->row;
    *hit = (mc_site_hit){site, &self->tables.sites[mc_site_find(mc_the_segment, &self->tables, call, site)], call};
    return hit->row;
}

static uint32_t draw_calls_until_timed(mc_thread *self)
{
    self->random ^= self->random << 13;
    self->random ^= self->random >> 17;
    self->random ^= self->random << 5;
    return self->every + (self->random & (2 * self->every - 1));
}

/* Adapt the sampling rate, because timing a call costs a memory-bound program up to a microsecond. */
static void choose_every(mc_thread *self, uint64_t now)
{
    uint64_t took = now > self->t_choice ? now - self->t_choice : 0;
    if (++self->n_timed < TIMED_BETWEEN_CHOICES && took < TIMED_BETWEEN_CHOICES * (uint64_t)TIMED_TOO_LATE_NS)
        return;
    if (took < TIMED_BETWEEN_CHOICES * (uint64_t)TIMED_TOO_SOON_NS && self->every < SAMPLE_EVERY_MOST)
        self->every *= 2;
    else if (took >= self->n_timed * (uint64_t)TIMED_TOO_LATE_NS && self->every > MC_SAMPLE_EVERY)
        self->every /= 2;
    self->n_timed = 0;
    self->t_choice = now;
}

int mc_enter_sampled(mc_frame *frame, uint32_t call, void *site, const char *stack)
{
    mc_thread *self = &mc_self;
    if (!enter(self, frame, call, site, stack))
        return 0;
    if (!frame->is_recorded)
        return 1;
    mc_site_row *row = find_site(self, call, site);
    if (mc_the_segment->n_events_max || row->n_timed < N_ALWAYS_TIMED)
        return begin_call(self, frame);
    if (!__atomic_load_n(&mc_is_chained, __ATOMIC_RELAXED))
        self->hits[mc_hit_index(site)].call = call | MC_COUNTABLE;
    if (self->calls_until_timed == 0) {
        frame->weight = self->interval;
        choose_every(self, frame->t_enter);
        self->calls_until_timed = draw_calls_until_timed(self);
        self->interval = self->calls_until_timed + 1;
        return begin_call(self, frame);
    }
    self->calls_until_timed--;
    row->n++;
    frame->row = row;
    frame->weight = 0;
    return 1;
}

static uint64_t overlap(uint64_t a0, uint64_t a1, uint64_t b0, uint64_t b1)
{
    uint64_t low = a0 > b0 ? a0 : b0, high = a1 < b1 ? a1 : b1;
    return high > low ? high - low : 0;
}

static mc_cell part_in(uint64_t t_last, const mc_frame *frame, uint64_t t_leave, uint64_t t0, uint64_t t1, uint64_t n)
{
    return (mc_cell){.comp_ns = overlap(t_last, frame->t_enter, t0, t1),
                     .mpi_ns = overlap(frame->t_enter, t_leave, t0, t1),
                     .n = t_leave >= t0 && t_leave < t1 ? n : 0};
}

static void take_off(mc_cell *cell, const mc_cell *part)
{
    cell->comp_ns -= part->comp_ns < cell->comp_ns ? part->comp_ns : cell->comp_ns;
    cell->mpi_ns -= part->mpi_ns < cell->mpi_ns ? part->mpi_ns : cell->mpi_ns;
    cell->n -= part->n < cell->n ? part->n : cell->n;
}

static void add_sample(mc_tables *tables, uint32_t i_row, uint64_t i_window, const mc_sample *sample)
{
    mc_lane_head *head = tables->head;
    if (!sample->cell.comp_ns && !sample->cell.mpi_ns)
        return;
    if (head->n_pending && head->pending[0].i_window != i_window)
        mc_pending_settle(&mc_the_segment->sampling, tables, 0);
    if (!mc_pending_add(tables, i_row, i_window, sample)) {
        head->void_window = i_window + 1;
        head->counters.n_pending_overflow++;
    }
}

/* Put the part of a cycle that lies inside sampled windows on the pending list, and subtract the part inside shutters
   from *rest. Returns the cycle's time inside shutters. */
static uint64_t split_at_windows(mc_tables *tables, mc_stream *stream, uint32_t i_row, const mc_frame *frame,
                                 uint64_t t_leave, mc_cell *rest)
{
    const mc_sampling *sampling = &mc_the_segment->sampling;
    uint64_t n = __atomic_load_n(&sampling->n_windows, __ATOMIC_ACQUIRE), n_ended = rest->n, inside_ns = 0;
    if (n - stream->i_window >= MC_N_WINDOWS)
        stream->i_window = n - MC_N_WINDOWS + 1;
    for (; stream->i_window < n; stream->i_window++) {
        mc_window window = sampling->windows[stream->i_window % MC_N_WINDOWS];
        if (window.begin >= t_leave)
            break;
        mc_sample sample = {part_in(stream->t_last, frame, t_leave, window.t0, window.t1, n_ended), 0, 0};
        mc_cell inside = part_in(stream->t_last, frame, t_leave, window.begin, window.end, n_ended);
        take_off(rest, &inside);
        inside_ns += inside.comp_ns + inside.mpi_ns;
        if (sample.cell.n) {
            sample.cut_ns = rest->comp_ns + rest->mpi_ns;
            sample.done_ns = inside_ns;
        }
        add_sample(tables, i_row, stream->i_window, &sample);
        if (window.end > t_leave)
            break;
    }
    return inside_ns;
}

/* Record n cycles of one kind. Together they lasted from the stream's last mark to t_leave, and they ended at the site
   `to`. Returns their time outside the call. */
static uint64_t record_cycle(mc_tables *tables, mc_stream *stream, const mc_frame *frame, uint64_t t_leave, uint32_t to,
                             uint64_t bytes, uint64_t n)
{
    const mc_sampling *sampling = &mc_the_segment->sampling;
    mc_cell cell = {.comp_ns = since(stream->t_last, frame->t_enter), .mpi_ns = since(frame->t_enter, t_leave), .n = n};
    uint64_t paused_before = frame->paused_ns - stream->paused_ns;
    uint64_t paused_inside = mc_thread_paused_ns - frame->paused_ns;
    cell.comp_ns -= paused_before < cell.comp_ns ? paused_before : cell.comp_ns;
    cell.mpi_ns -= paused_inside < cell.mpi_ns ? paused_inside : cell.mpi_ns;
    uint64_t comp_ns = cell.comp_ns;
    uint32_t i_row = mc_cycle_find(tables, (uint32_t)stream->i_site, to, bytes);
    mc_cycle_row *row = &tables->cycles[i_row];
    uint64_t inside_ns = 0, alone = __atomic_load_n(&sampling->alone, __ATOMIC_RELAXED);
    if (stream->i_window != __atomic_load_n(&sampling->n_windows, __ATOMIC_ACQUIRE))
        inside_ns = split_at_windows(tables, stream, i_row, frame, t_leave, &cell);
    mc_cell_add(alone ? &row->alone : &row->corun[stream->i_window % MC_N_GROUPS], &cell);
    if (inside_ns && !alone) {
        row->n_cut += cell.n;
        row->cut_ns += cell.comp_ns + cell.mpi_ns;
    }
    stream->i_site = to;
    stream->paused_ns = mc_thread_paused_ns;
    stream->t_last = t_leave;
    return comp_ns;
}

static void end_cycle(mc_tables *tables, const mc_frame *frame, uint64_t t_leave, uint32_t i_site, uint64_t bytes)
{
    tables->head->gap_ns += record_cycle(tables, &tables->head->calls, frame, t_leave, i_site, bytes, 1);
}

void mc_units(const mc_frame *frame, uint64_t n)
{
    mc_tables *tables = &mc_self.tables;
    mc_stream *units = &tables->head->units;
    tables->head->counters.n_units += n;
    if (units->t_last == 0) /* the start of the first unit is unknown */
        *units = (mc_stream){frame->t_enter, frame->paused_ns, MC_UNIT_SITE, tables->head->calls.i_window};
    else if (n)
        record_cycle(tables, units, frame, frame->t_enter, MC_UNIT_SITE, 0, n);
}

/* Put an event into the ring, from which the agent writes it to a file. The last 8 bytes are stored after all others.
   They hold a lap number, which shows that the event is complete. */
static void keep_event(mc_lane_head *head, const mc_event *event)
{
    mc_segment *segment = mc_the_segment;
    mc_ring *ring = &segment->ring;
    uint64_t i = __atomic_load_n(&ring->n_put, __ATOMIC_RELAXED), tail;
    do {
        if (i - __atomic_load_n(&ring->n_taken, __ATOMIC_ACQUIRE) >= segment->n_events_max) {
            head->counters.n_events_dropped++;
            return;
        }
    } while (!__atomic_compare_exchange_n(&ring->n_put, &i, i + 1, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    mc_event *place = (mc_event *)(segment + 1) + (i & (segment->n_events_max - 1));
    memcpy(&tail, &event->peer, sizeof tail);
    tail |= (uint64_t)mc_event_lap(i, segment->n_events_max) << 32;
    place->t_ns = event->t_ns;
    place->duration_ns = event->duration_ns;
    place->bytes = event->bytes;
    __atomic_store_n(mc_event_tail(place), tail, __ATOMIC_RELEASE);
}

void mc_trace_message(const mc_frame *frame, int peer, uint64_t bytes, uint16_t message)
{
    mc_thread *self = &mc_self;
    if (self->tables.head)
        keep_event(self->tables.head, &(mc_event){.t_ns = frame->t_enter,
                                                  .bytes = bytes,
                                                  .peer = peer,
                                                  .call = (uint16_t)(frame->call | message | MC_EVENT_MESSAGE),
                                                  .i_site = (uint16_t)(self->i_lane << MC_EVENT_LANE_SHIFT)});
}

static void record_event(mc_thread *self, const mc_frame *frame, uint64_t t_leave, uint64_t time_ns, uint32_t i_site,
                         uint64_t bytes)
{
    /* The ring follows the segment struct. All threads of the rank share one index, so that their events stay in
       order. */
    mc_segment *segment = mc_the_segment;
    mc_lane_head *head = self->tables.head;
    mc_event event = {.t_ns = frame->t_enter,
                      .duration_ns = time_ns,
                      .bytes = bytes,
                      .peer = frame->peer,
                      .call = (uint16_t)frame->call,
                      .i_site = (uint16_t)i_site};
    if (segment->ring.is_kept) {
        /* Include pauses, so that t_ns + duration_ns is the real end of the call. */
        event.duration_ns = since(frame->t_enter, t_leave);
        event.call = (uint16_t)(frame->call | frame->message);
        event.i_site = (uint16_t)(i_site | (uint32_t)self->i_lane << MC_EVENT_LANE_SHIFT);
        keep_event(head, &event);
        return;
    }
    uint64_t i = __atomic_fetch_add(&segment->counters.n_events, 1, __ATOMIC_RELAXED);
    if (i >= segment->n_events_max)
        head->counters.n_events_dropped++;
    ((mc_event *)(segment + 1))[i % segment->n_events_max] = event;
}

static inline __attribute__((always_inline)) void end_call(mc_thread *self, const mc_frame *frame, uint64_t t_leave,
                                                           uint64_t sent_bytes, uint64_t recv_bytes)
{
    /* Subtract pauses before multiplying, because a pause happened once, and not in each call that this call stands
       for. */
    uint64_t time_ns = since(mc_thread_paused_ns - frame->paused_ns, since(frame->t_enter, t_leave));
    mc_site_row *row = find_site(self, frame->call, frame->site);
    uint32_t i_site = (uint32_t)(row - self->tables.sites);
    row->n++;
    row->n_timed++;
    row->sent_bytes += sent_bytes;
    row->recv_bytes += recv_bytes;
    row->time_ns += time_ns * frame->weight;
    if (time_ns > row->max_ns)
        row->max_ns = time_ns;
    self->tables.head->counters.sampled_ns += time_ns * (frame->weight - 1);
    end_cycle(&self->tables, frame, t_leave, i_site, sent_bytes + recv_bytes);
    if (mc_the_segment->n_events_max)
        record_event(self, frame, t_leave, time_ns, i_site, sent_bytes + recv_bytes);
    if (t_leave >= self->clock.due_ns)
        mc_clock_renew(&self->clock);
}

static __attribute__((cold, noinline)) void end_counted(mc_thread *self, const mc_frame *frame, uint64_t t_leave,
                                                        uint64_t sent_bytes, uint64_t recv_bytes)
{
    uint64_t lost_ns = count(self, t_leave, 1, MC_TALLY_OUTSIDE);
    end_call(self, frame, t_leave, sent_bytes, recv_bytes);
    pass_over(self->tables.head, lost_ns);
}

void mc_leave(mc_frame *frame, uint64_t sent_bytes, uint64_t recv_bytes)
{
    mc_thread *self = &mc_self;
    self->outer = NULL;
    if (!frame->is_recorded || !self->tables.head)
        return;
    uint64_t t_leave = mc_clock_read(&self->clock);
    if (is_counting(t_leave))
        end_counted(self, frame, t_leave, sent_bytes, recv_bytes);
    else
        end_call(self, frame, t_leave, sent_bytes, recv_bytes);
}

void mc_leave_done(mc_frame *frame, uint64_t sent_bytes, uint64_t recv_bytes)
{
    mc_thread *self = &mc_self;
    if (frame->weight) {
        mc_leave(frame, sent_bytes, recv_bytes);
        return;
    }
    self->outer = NULL;
    frame->row->sent_bytes += sent_bytes;
    frame->row->recv_bytes += recv_bytes;
    if (!self->tables.head)
        return;
    frame->paused_ns = mc_thread_paused_ns;
    frame->t_enter = mc_clock_read(&self->clock);
    end_cycle(&self->tables, frame, frame->t_enter, (uint32_t)(frame->row - self->tables.sites),
              sent_bytes + recv_bytes);
}

/* ---- slow path of recording bytes and peers in the thread's tables ---- */

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
