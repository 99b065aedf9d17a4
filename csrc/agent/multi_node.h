/* Shutters of a job on several nodes are at one instant on all of them: on half of the nodes they would tell nothing,
   as ranks that run alone wait for those that do not. The coordinator asks each node's agent whether the node is free
   at an instant, and books it when all are. */
#ifndef MPICOLOC_MULTI_NODE_H
#define MPICOLOC_MULTI_NODE_H

#include "agent/lengths.h"
#include "agent/shutter/own_shutter.h"

/* A bubble for the next shutter of all nodes, as mc_common has it. */
typedef struct mc_drawn_bubble {
    uint64_t bubble, is_wanted;
} mc_drawn_bubble;

/* What the coordinator reads to choose an instant. */
void mc_multi_node_publish(mc_node *node, const mc_board_view *view, const mc_lengths *lengths, mc_drawn_bubble drawn,
                           int has_ranks);
/* Book what the coordinator has decided, and report what became of the last one on this node. */
void mc_multi_node_decide(mc_node *node, mc_board_view *view, const mc_own_shutter *own, uint64_t notice_ns,
                          uint64_t now);
/* 1: the coordinator has confirmed this shutter, with the verdict of all nodes. */
int mc_multi_node_is_confirmed(const mc_node *node, const mc_own_shutter *own, uint64_t *verdict);
/* Whether the coordinator waits for an answer. */
int mc_multi_node_has_request(const mc_node *node);
/* Answer the coordinator: is the node free then, and can what it asks for run beside the job? */
void mc_multi_node_answer(mc_node *node, mc_board_view *view, uint64_t period_ns, uint64_t notice_ns, int can_bubble,
                          uint64_t now);

/* Every agent of the node wakes within this, and so reads what was booked. */
static inline uint64_t mc_multi_node_notice_ns(uint64_t period_ns, uint64_t lead_ns)
{
    return period_ns * 3 / 2 + lead_ns;
}

#endif
