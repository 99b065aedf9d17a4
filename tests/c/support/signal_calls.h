/* Calls that can sleep, each with what ends it rightly. */
#ifndef MC_TEST_SIGNAL_CALLS_H
#define MC_TEST_SIGNAL_CALLS_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CALL_MS = 80 };

/* Made before the fork; shared by the process that calls and the one that ends the call. */
typedef struct call_things {
    int pipe[2], pair[2], listener, sysv_sem, sysv_queue, locked_file;
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    sem_t semaphore;
    volatile int flag;
} call_things;

typedef struct sleeping_call {
    const char *name;
    int (*call)(call_things *);        /* 0: ended as it should; else errno */
    void (*end)(call_things *, pid_t); /* NULL: its time ends it */
} sleeping_call;

#define CALL(name) static inline int call_##name(__attribute__((unused)) call_things *t)
#define END(name) \
    static inline void end_##name(__attribute__((unused)) call_things *t, __attribute__((unused)) pid_t pid)
/* Those that one expression makes. */
#define CALL_BY(name, expression) \
    CALL(name) \
    { \
        return expression; \
    }
#define END_BY(name, expression) \
    END(name) \
    { \
        expression; \
    }

static volatile sig_atomic_t n_own_signals;

static inline void on_own_signal(int signal)
{
    (void)signal;
    n_own_signals++;
}

static inline struct timespec *call_time(void)
{
    static struct timespec t;
    t = (struct timespec){0, CALL_MS * 1000000l};
    return &t;
}

static inline struct timespec *call_end(clockid_t clock)
{
    static struct timespec t;
    clock_gettime(clock, &t);
    t.tv_nsec += CALL_MS * 1000000l;
    t.tv_sec += t.tv_nsec / 1000000000l;
    t.tv_nsec %= 1000000000l;
    return &t;
}

static inline int ended(long result, long wanted)
{
    return result == wanted ? 0 : result < 0 ? errno : -1;
}

/* Whether the call's time has ended it, which it tells by this error. */
static inline int expired(long result, int error)
{
    return result >= 0 ? -1 : errno == error ? 0 : errno;
}

static inline int do_ppoll(const call_things *t, const sigset_t *mask)
{
    struct pollfd fd = {t->pipe[0], POLLIN, 0};
    return ended(ppoll(&fd, 1, call_time(), mask), 0);
}

static inline int do_pselect(const call_things *t, const sigset_t *mask)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(t->pipe[0], &set);
    return ended(pselect(t->pipe[0] + 1, &set, NULL, NULL, call_time(), mask), 0);
}

static inline const sigset_t *no_signals(void)
{
    static sigset_t mask;
    sigemptyset(&mask);
    return &mask;
}

CALL_BY(poll, ended(poll(&(struct pollfd){t->pipe[0], POLLIN, 0}, 1, CALL_MS), 0))
CALL_BY(ppoll, do_ppoll(t, NULL))
CALL_BY(ppoll_mask, do_ppoll(t, no_signals()))
CALL_BY(pselect, do_pselect(t, NULL))
CALL_BY(pselect_mask, do_pselect(t, no_signals()))

CALL(select)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(t->pipe[0], &set);
    return ended(select(t->pipe[0] + 1, &set, NULL, NULL, &(struct timeval){0, CALL_MS * 1000}), 0);
}

static inline int make_epoll(const call_things *t)
{
    struct epoll_event event = {.events = EPOLLIN};
    int fd = epoll_create1(0);
    epoll_ctl(fd, EPOLL_CTL_ADD, t->pipe[0], &event);
    return fd;
}

CALL_BY(epoll_wait, ended(epoll_wait(make_epoll(t), &(struct epoll_event){0}, 1, CALL_MS), 0))
CALL_BY(epoll_pwait, ended(epoll_pwait(make_epoll(t), &(struct epoll_event){0}, 1, CALL_MS, NULL), 0))
CALL_BY(nanosleep, ended(nanosleep(call_time(), NULL), 0))
CALL_BY(nanosleep_rest, ended(nanosleep(call_time(), call_time()), 0))
CALL_BY(clock_nanosleep, clock_nanosleep(CLOCK_MONOTONIC, 0, call_time(), NULL))
CALL_BY(clock_nanosleep_abs, clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, call_end(CLOCK_MONOTONIC), NULL))
CALL_BY(usleep, ended(usleep(CALL_MS * 1000), 0))

CALL(sleep)
{
    uint64_t begin = mc_now_ns(); /* what sleep() returns is rounded */
    sleep(1);
    return mc_now_ns() - begin >= 1000000000u ? 0 : EINTR;
}

CALL_BY(mutex, pthread_mutex_lock(&t->mutex))
END_BY(mutex, pthread_mutex_unlock(&t->mutex))

CALL(cond_wait)
{
    pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&own);
    int error = pthread_cond_wait(&t->condition, &own);
    return error ? error : t->flag ? 0 : -1;
}

END(cond_wait)
{
    t->flag = 1;
    pthread_cond_broadcast(&t->condition);
}

CALL(cond_timedwait)
{
    pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&own);
    int error = pthread_cond_timedwait(&t->condition, &own, call_end(CLOCK_REALTIME));
    return error == ETIMEDOUT ? 0 : error ? error : -1;
}

CALL_BY(sem_wait, ended(sem_wait(&t->semaphore), 0))
END_BY(sem_wait, sem_post(&t->semaphore))
CALL_BY(sem_timedwait, expired(sem_timedwait(&t->semaphore, call_end(CLOCK_REALTIME)), ETIMEDOUT))
CALL_BY(futex, expired(syscall(SYS_futex, &t->flag, 0 /* FUTEX_WAIT */, 0, call_time(), NULL, 0), ETIMEDOUT))
CALL_BY(read, ended(read(t->pipe[0], &(char){0}, 1), 1))

END(read)
{
    if (write(t->pipe[1], "x", 1) != 1)
        abort();
}

static inline int limited_socket(const call_things *t)
{
    struct timeval time = {0, CALL_MS * 1000};
    setsockopt(t->pair[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    setsockopt(t->pair[0], SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
    return t->pair[0];
}

CALL_BY(read_timeout, expired(read(limited_socket(t), &(char){0}, 1), EAGAIN))
CALL_BY(recv_timeout, expired(recv(limited_socket(t), &(char){0}, 1, 0), EAGAIN))

CALL(recvmsg_timeout)
{
    struct iovec vector = {&(char){0}, 1};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    return expired(recvmsg(limited_socket(t), &message, 0), EAGAIN);
}

CALL(send_timeout)
{
    static char block[4096];
    int fd = limited_socket(t);
    while (send(fd, block, sizeof block, MSG_DONTWAIT) > 0)
        ;
    return expired(send(fd, block, sizeof block, 0), EAGAIN);
}

static inline int connect_to(const call_things *t)
{
    struct sockaddr_un name;
    socklen_t size = sizeof name;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    getsockname(t->listener, (struct sockaddr *)&name, &size);
    return connect(fd, (struct sockaddr *)&name, size);
}

CALL_BY(accept, accept(t->listener, NULL, NULL) >= 0 ? 0 : errno)

END(accept)
{
    if (connect_to(t) != 0)
        abort();
}

/* The listener's queue holds one; the second waits. */
CALL_BY(connect, connect_to(t) != 0 || connect_to(t) != 0 ? errno : 0)
END_BY(connect, accept(t->listener, NULL, NULL))

static inline const sigset_t *own_signals(void)
{
    static sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return &set;
}

CALL_BY(sigtimedwait, expired(sigtimedwait(own_signals(), NULL, call_time()), EAGAIN))
CALL_BY(sigwait, sigwait(own_signals(), &(int){0}))
CALL_BY(sigwaitinfo, ended(sigwaitinfo(own_signals(), NULL), SIGUSR1))

CALL(pause)
{
    signal(SIGUSR1, on_own_signal);
    pause();
    return n_own_signals == 1 ? 0 : EINTR;
}

CALL(sigsuspend)
{
    signal(SIGUSR1, on_own_signal);
    own_signals();
    sigsuspend(no_signals());
    return n_own_signals == 1 ? 0 : EINTR;
}

END_BY(by_signal, kill(pid, SIGUSR1))

CALL_BY(semop, ended(semop(t->sysv_sem, &(struct sembuf){0, -1, 0}, 1), 0))
END_BY(semop, semop(t->sysv_sem, &(struct sembuf){0, 1, 0}, 1))
CALL_BY(semtimedop, expired(semtimedop(t->sysv_sem, &(struct sembuf){0, -1, 0}, 1, call_time()), EAGAIN))

struct short_message {
    long type;
    char text[8];
};

CALL_BY(msgrcv, msgrcv(t->sysv_queue, &(struct short_message){0}, sizeof(char[8]), 0, 0) >= 0 ? 0 : errno)
END_BY(msgrcv, msgsnd(t->sysv_queue, &(struct short_message){1, "hello"}, sizeof(char[8]), 0))

static inline int open_again(const call_things *t)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", t->locked_file);
    return open(path, O_RDWR);
}

CALL_BY(flock, ended(flock(open_again(t), LOCK_EX), 0))
END_BY(flock, flock(t->locked_file, LOCK_UN))

CALL(waitpid)
{
    char byte;
    pid_t pid = fork();
    if (pid == 0)
        _exit(read(t->pipe[0], &byte, 1) == 1 ? 0 : 1);
    return ended(waitpid(pid, NULL, 0), pid);
}

static const sleeping_call sleeping_calls[] = {
    {"poll", call_poll, NULL},
    {"ppoll without a mask", call_ppoll, NULL},
    {"ppoll with a mask", call_ppoll_mask, NULL},
    {"select", call_select, NULL},
    {"pselect without a mask", call_pselect, NULL},
    {"pselect with a mask", call_pselect_mask, NULL},
    {"epoll_wait", call_epoll_wait, NULL},
    {"epoll_pwait without a mask", call_epoll_pwait, NULL},
    {"nanosleep", call_nanosleep, NULL},
    {"nanosleep that keeps its rest", call_nanosleep_rest, NULL},
    {"clock_nanosleep", call_clock_nanosleep, NULL},
    {"clock_nanosleep until a time", call_clock_nanosleep_abs, NULL},
    {"usleep", call_usleep, NULL},
    {"sleep", call_sleep, NULL},
    {"pthread_mutex_lock", call_mutex, end_mutex},
    {"pthread_cond_wait", call_cond_wait, end_cond_wait},
    {"pthread_cond_timedwait", call_cond_timedwait, NULL},
    {"sem_wait", call_sem_wait, end_sem_wait},
    {"sem_timedwait", call_sem_timedwait, NULL},
    {"futex with a time, by syscall()", call_futex, NULL},
    {"read from a pipe", call_read, end_read},
    {"read with SO_RCVTIMEO", call_read_timeout, NULL},
    {"recv with SO_RCVTIMEO", call_recv_timeout, NULL},
    {"recvmsg with SO_RCVTIMEO", call_recvmsg_timeout, NULL},
    {"send with SO_SNDTIMEO", call_send_timeout, NULL},
    {"accept", call_accept, end_accept},
    {"connect", call_connect, end_connect},
    {"sigtimedwait", call_sigtimedwait, NULL},
    {"sigwait", call_sigwait, end_by_signal},
    {"sigwaitinfo", call_sigwaitinfo, end_by_signal},
    {"pause", call_pause, end_by_signal},
    {"sigsuspend for a signal that is blocked otherwise", call_sigsuspend, end_by_signal},
    {"semop", call_semop, end_semop},
    {"semtimedop", call_semtimedop, NULL},
    {"msgrcv", call_msgrcv, end_msgrcv},
    {"flock", call_flock, end_flock},
    {"waitpid", call_waitpid, end_read},
};

#endif
