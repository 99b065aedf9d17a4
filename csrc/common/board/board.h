/* The board on which the jobs of a node coordinate. The content of another job's slot is never trusted. */
#ifndef MPICOLOC_BOARD_H
#define MPICOLOC_BOARD_H

#include "common/mpicoloc.h"

/* Number of bubbles that the request asks the job in slot i_slot to run. */
static inline int mc_press_share(const mc_press_request *request, int i_slot)
{
    return (int)(request->shares[i_slot / 8] >> (i_slot % 8 * 8) & 0xff);
}

/* Request n bubbles, at most 255, from the job in slot i_slot. Call this once for each slot. */
static inline void mc_press_ask(mc_press_request *request, int i_slot, int n)
{
    request->shares[i_slot / 8] |= (uint64_t)n << (i_slot % 8 * 8);
    request->n_bubbles += (uint64_t)n;
}

/* Whether the reserved shutter spares the job in slot i_slot, that is, does not pause that job. */
static inline int mc_is_spared(const mc_reservation *reservation, int i_slot)
{
    return (int)(reservation->spared >> i_slot & 1);
}

/* Snapshot of another job. */
typedef struct mc_neighbour {
    int i_slot;
    uint64_t owner, t_joined;
    uint32_t n_ranks;
} mc_neighbour;

/* Path of the board of this version. */
int mc_board_path(char *path, size_t size);
/* Map the node's board, creating it if there is none, and pass it to jobs with a different shared-memory folder.
   Returns MC_E_ABI if the file is not a board of this version, and MC_E_VERSION if the board at the socket has another
   version. */
int mc_board_open(mc_board **out);
/* Unmap the board, which also frees slots of this process that were not released. */
void mc_board_unmap(mc_board *board);

/* 1 if a job that joined now would find the mapped board. */
int mc_board_current(const mc_board *board);

/* Reason why some jobs of the node may be missing from the board; NULL if no job can be missing. */
const char *mc_board_unseen(const mc_board *board);

/* A number that identifies a process, even among processes of different PID namespaces. */
uint64_t mc_board_owner(int pid, uint64_t start_ticks);

/* Claim a free slot for a job that joins now. The job owns the slot until it is released or the process ends. */
int mc_board_claim(mc_board *board, uint64_t owner, const char *job_id, mc_slot **out);
void mc_board_release(mc_board *board, mc_slot *slot);

/* Remove the file in the shared-memory folder if no live job is on it. */
void mc_board_remove_if_empty(void);

/* Get the live jobs, in slot order; returns their number. */
int mc_board_live(mc_board *board, uint64_t now, mc_neighbour *out);

/* The longest period that any job wants. From this period, all readers of a board compute the same grid. */
uint64_t mc_board_period(mc_board *board, const mc_neighbour *live, int n_live, uint64_t at_least_ns);

/* Name of the job that owns the slot now. */
void mc_slot_name(const mc_slot *slot, char name[MC_NAME_LEN]);

void mc_slot_reserve(mc_slot *slot, const mc_reservation *reservation);
/* Returns MC_E_GONE if the reservation was being written at each try. */
int mc_slot_reservation(mc_slot *slot, mc_reservation *out);

/* Store a booking; if its t0 is 0, remove the booking. */
void mc_slot_book(mc_slot *slot, const mc_booking *booking);
/* Returns MC_E_GONE if there is no booking or its times are not plausible. */
int mc_slot_booking(mc_slot *slot, mc_booking *out);

void mc_slot_acknowledge(mc_slot *slot, const mc_ack *ack);
/* Returns MC_E_GONE if the job has not acknowledged this epoch. */
int mc_slot_ack(mc_slot *slot, uint64_t epoch, mc_ack *out);

/* splitmix64, which maps consecutive numbers to numbers that are far apart. */
static inline uint64_t mc_scattered(uint64_t i)
{
    uint64_t x = i * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Instant i of the grid that all jobs share. Each instant is shifted by up to 0.3 periods, equally for all jobs.
   Without the shift, a job whose iteration time divides the period would have every shutter at the same point of its
   iteration. */
uint64_t mc_instant_ns(uint64_t i_instant, uint64_t period_ns);

#endif
