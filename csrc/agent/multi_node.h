/* Shutters of a job on several nodes take place at one instant on all of them. A shutter on only some of the nodes
   would tell nothing, because ranks on these nodes would wait for ranks on the others. The coordinator asks each node's
   agent whether the node is free at an instant, and books the instant when all nodes are free. */
#ifndef MPICOLOC_MULTI_NODE_H
#define MPICOLOC_MULTI_NODE_H

#include "agent/lengths.h"
#include "agent/shutter/own_shutter.h"

/* Bubble that an agent draws for the next shutter on all nodes, encoded as in mc_common. */
typedef struct mc_drawn_bubble {
    uint64_t bubble, is_wanted;
} mc_drawn_bubble;

/* Publish the values that the coordinator needs to choose an instant. */
void mc_multi_node_publish(mc_node *node, const mc_board_view *view, const mc_lengths *lengths, mc_drawn_bubble drawn,
                           int has_ranks);
/* Book the shutter that the coordinator has decided on, and report this node's verdict on the last shutter. */
void mc_multi_node_decide(mc_node *node, mc_board_view *view, const mc_own_shutter *own, uint64_t notice_ns,
                          uint64_t now);
/* 1: the coordinator has confirmed this shutter; *verdict is then the joint verdict of all nodes. */
int mc_multi_node_is_confirmed(const mc_node *node, const mc_own_shutter *own, uint64_t *verdict);
/* Whether the coordinator waits for an answer. */
int mc_multi_node_has_request(const mc_node *node);
/* Answer the coordinator: whether the node is free at the proposed instant, and whether the proposed bubble can
   run. */
void mc_multi_node_answer(mc_node *node, mc_board_view *view, uint64_t period_ns, uint64_t notice_ns, int can_bubble,
                          uint64_t now);

/* Least time from a booking to its instant. It is long enough for every agent of the node to wake and read the
   booking. */
static inline uint64_t mc_multi_node_notice_ns(uint64_t period_ns, uint64_t lead_ns)
{
    return period_ns * 3 / 2 + lead_ns;
}

#endif
