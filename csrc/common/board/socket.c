#define _GNU_SOURCE
#include "common/board/socket.h"

#include "common/options.h"
#include "common/proc.h"
#include "common/threads.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

/* The thread sleeps after each full backlog, which limits the processor time that a flood of requests can cost. */
enum { STACK_BYTES = 64 * 1024, BACKLOG = 64, REST_MS = 50 };

/* Buffer for a control message with two descriptors, too small for a third. */
typedef union ancillary {
    struct cmsghdr head;
    char room[CMSG_SPACE(2 * sizeof(int))];
} ancillary;

static const uint64_t HASH_START = 0xcbf29ce484222325u, HASH_STEP = 0x100000001b3u; /* FNV-1a */

/* The name is the same in all versions, so that jobs of different versions discover each other. There is no socket for
   a shared-memory folder on a disk, or for one that simulates a node in a lab. */
int mc_board_socket_name(char *name, size_t size)
{
    char path[MC_PATH_LEN];
    struct stat status;
    struct statfs system;
    const char *dir = mc_option_text(MC_OPT_SHM_DIR);
    uint64_t hash = HASH_START;
    if (statfs(dir, &system) != 0 || system.f_type != TMPFS_MAGIC)
        return 0;
    int n = snprintf(path, sizeof path, "%s/.mpicoloc-whole-node", dir);
    if (n >= (int)sizeof path || (lstat(path, &status) == 0 && status.st_uid == 0))
        return 0;
    for (const char *c = dir; *c; c++)
        hash = (hash ^ (unsigned char)*c) * HASH_STEP;
    return snprintf(name, size, "mpicoloc.board.%016llx", (unsigned long long)hash) < (int)size;
}

static socklen_t address_of(struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (!mc_board_socket_name(address->sun_path + 1, sizeof address->sun_path - 1))
        return 0;
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(address->sun_path + 1));
}

int mc_board_socket_make(int *listener)
{
    struct sockaddr_un address;
    socklen_t length = address_of(&address);
    int fd = length ? socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;
    if (fd < 0)
        return MC_E_SHM;
    int ok = bind(fd, (struct sockaddr *)&address, length) == 0;
    int status = ok ? MC_OK : errno == EADDRINUSE ? MC_E_FULL : MC_E_SHM;
    if (ok && listen(fd, BACKLOG) != 0)
        status = MC_E_SHM;
    if (status == MC_OK)
        *listener = fd;
    else
        close(fd);
    return status;
}

/* Whether the process at the other end belongs to this user or root. A descriptor from another user can be on a file
   system that this user serves, where even close() may block. And another user who gets the listening socket can shut
   it down for all jobs. */
static int is_trusted(int connection, uid_t *uid)
{
    struct ucred peer;
    socklen_t length = sizeof peer;
    if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
        return 0;
    *uid = peer.uid;
    return peer.uid == geteuid() || peer.uid == 0;
}

/* ---- asking ---- */

static int take_two(int from, int fds[2])
{
    char byte;
    ancillary control;
    struct iovec data = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    int n = 0;
    if (recvmsg(from, &message, MSG_CMSG_CLOEXEC) < 0)
        return 0;
    const struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
        n = (int)((head->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fds, CMSG_DATA(head), (size_t)n * sizeof(int));
    }
    if (n == 2)
        return 1;
    for (int i = 0; i < n; i++)
        close(fds[i]);
    return 0;
}

/* Whether the descriptors are a file in memory and the listening socket itself. Files of other file systems are
   refused, because calls on them can block. */
static int are_as_asked(const int fds[2], const struct sockaddr_un *address, socklen_t length)
{
    struct sockaddr_un found;
    socklen_t found_length = sizeof found, flag_length = sizeof(int);
    int listens = 0;
    return getsockopt(fds[1], SOL_SOCKET, SO_ACCEPTCONN, &listens, &flag_length) == 0 && listens &&
           getsockname(fds[1], (struct sockaddr *)&found, &found_length) == 0 && found_length == length &&
           memcmp(&found, address, length) == 0 && fcntl(fds[0], F_GET_SEALS) >= 0;
}

static int ask_once(int fds[2], const struct sockaddr_un *address, socklen_t length, int wait_ms, uid_t *stranger)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), status = MC_E_GONE;
    const struct timeval most = {wait_ms / 1000, wait_ms % 1000 * 1000};
    if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most) == 0 && /* limits connect() */
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most) == 0 &&
        connect(fd, (const struct sockaddr *)address, length) == 0)
        status = !is_trusted(fd, stranger) ? MC_E_STRANGER : take_two(fd, fds) ? MC_OK : MC_E_GONE;
    close(fd);
    if (status == MC_OK && !are_as_asked(fds, address, length)) {
        close(fds[0]);
        close(fds[1]);
        return MC_E_GONE;
    }
    return status;
}

int mc_board_socket_ask(int *listener, int *board_fd, int wait_ms, uid_t *stranger)
{
    struct sockaddr_un address;
    socklen_t length = address_of(&address);
    int fds[2], status = length ? ask_once(fds, &address, length, wait_ms, stranger) : MC_E_GONE;
    if (status != MC_OK)
        return status;
    *board_fd = fds[0];
    *listener = fds[1];
    return MC_OK;
}

/* ---- answering ---- */

/* Largest number of connections with unread descriptors. Such descriptors count against a limit that all programs of
   the user share. */
enum { N_UNREAD = 8 };

typedef struct server {
    int listener, board_fd, stop;
    int unread[N_UNREAD]; /* connections; -1: none */
} server;

static void close_all(const server *own)
{
    close(own->listener);
    close(own->board_fd);
    close(own->stop);
    for (int i = 0; i < N_UNREAD; i++)
        if (own->unread[i] >= 0)
            close(own->unread[i]);
}

/* A free entry for one more connection, or NULL. */
static int *find_place(server *own)
{
    for (int i = 0; i < N_UNREAD; i++) {
        int n_bytes = 0, *place = &own->unread[i];
        if (*place >= 0 && (ioctl(*place, SIOCOUTQ, &n_bytes) != 0 || n_bytes == 0)) {
            close(*place);
            *place = -1;
        }
        if (*place < 0)
            return place;
    }
    return NULL;
}

static void give(int to, const server *own)
{
    char byte = 0;
    ancillary control = {.room = {0}};
    struct iovec data = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    control.head = (struct cmsghdr){CMSG_LEN(2 * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.head), (int[]){own->board_fd, own->listener}, 2 * sizeof(int));
    sendmsg(to, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Answer all waiting connections. Returns 0 if the socket is unusable. Other listeners may take a connection first or
   make accept() block, so other threads must never wait for this one. */
static int give_all(server *own)
{
    for (int i = 0; i < BACKLOG; i++) {
        int *place = find_place(own), asker = accept4(own->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        uid_t uid;
        if (asker < 0)
            return errno != EBADF && errno != EINVAL && errno != ENOTSOCK;
        if (!place || !is_trusted(asker, &uid)) {
            close(asker); /* a genuine client asks again */
            continue;
        }
        give(asker, own);
        *place = asker;
    }
    return 1;
}

static void *serve(void *data)
{
    server own = *(server *)data;
    struct pollfd events[2] = {{own.listener, POLLIN, 0}, {own.stop, POLLIN, 0}};
    free(data);
    while (poll(events, 2, -1) > 0 && !events[1].revents && give_all(&own))
        poll(&events[1], 1, REST_MS);
    close_all(&own);
    return NULL;
}

int mc_board_socket_serve(int listener, int board_fd)
{
    pthread_t thread;
    int stop = eventfd(0, EFD_CLOEXEC);
    server of_thread = {listener, board_fd, fcntl(stop, F_DUPFD_CLOEXEC, 0), {0}}, *own = malloc(sizeof *own);
    memset(of_thread.unread, -1, sizeof of_thread.unread);
    if (own)
        *own = of_thread;
    if (own && of_thread.stop >= 0 && mc_thread_start(&thread, STACK_BYTES, 0, serve, own) == 0) {
        pthread_detach(thread);
        return stop;
    }
    free(own);
    close_all(&of_thread);
    close(stop);
    return -1;
}

void mc_board_socket_end(int stop)
{
    eventfd_write(stop, 1);
    close(stop);
}
