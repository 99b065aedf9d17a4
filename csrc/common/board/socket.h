/* The socket at which jobs of a node hand each other the board. An abstract socket belongs to the network namespace, so
   jobs meet there although each has a /dev/shm of its own. All jobs on the board listen at one and the same socket: it
   lasts until the last of them has gone, and nobody has to take over. */
#ifndef MPICOLOC_SOCKET_H
#define MPICOLOC_SOCKET_H

#include "common/mpicoloc.h"

#include <sys/types.h>

/* The longest wait for an answer. */
enum { MC_SOCKET_WAIT_MS = 500 };

/* Make the socket: MC_OK. MC_E_FULL: there is one. MC_E_SHM: there can be none. */
int mc_board_socket_make(int *listener);
/* Ask for the board within wait_ms. MC_OK: a file in memory and the listening socket; nothing else is known of the
   file. MC_E_GONE: nobody gives one. MC_E_STRANGER: the socket is of another user, who is not root. */
int mc_board_socket_ask(int *listener, int *board_fd, int wait_ms, uid_t *stranger);

/* Give the board to all of this user's and root's processes that ask, in a thread, which closes both descriptors at its
   end. Returns what ends it, or -1. */
int mc_board_socket_serve(int listener, int board_fd);
void mc_board_socket_end(int stop);

#endif
