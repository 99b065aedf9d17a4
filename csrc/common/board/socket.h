/* The socket at which the jobs of a node pass the board to each other. An abstract socket belongs to the network
   namespace, so jobs can meet there even if each has its own /dev/shm. All jobs on the board listen at the same socket,
   which exists until the last of them ends, so no job has to take over. */
#ifndef MPICOLOC_SOCKET_H
#define MPICOLOC_SOCKET_H

#include "common/mpicoloc.h"

#include <sys/types.h>

/* The longest wait for an answer. */
enum { MC_SOCKET_WAIT_MS = 500 };

/* Create the socket. Returns MC_E_FULL if the socket exists already, and MC_E_SHM if it cannot be created. */
int mc_board_socket_make(int *listener);
/* Ask for the board, waiting for at most wait_ms. Returns MC_OK with the listening socket and a file in memory, whose
   content is not checked; MC_E_GONE if no process answers; MC_E_STRANGER if the socket belongs to another user who is
   not root. */
int mc_board_socket_ask(int *listener, int *board_fd, int wait_ms, uid_t *stranger);

/* Start a thread that passes the board to this user's and root's processes on request, and closes both descriptors when
   it ends. Returns a handle for mc_board_socket_end, or -1. */
int mc_board_socket_serve(int listener, int board_fd);
void mc_board_socket_end(int stop);

#endif
