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

static volatile sig_atomic_t n_own_signals;

static inline void on_own_signal(int signal)
{
    (void)signal;
    n_own_signals++;
}

static inline struct timespec call_time(void)
{
    return (struct timespec){0, CALL_MS * 1000000l};
}

static inline struct timespec call_end(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_nsec += CALL_MS * 1000000l;
    t.tv_sec += t.tv_nsec / 1000000000l;
    t.tv_nsec %= 1000000000l;
    return t;
}

static inline int ended(long result, long wanted)
{
    return result == wanted ? 0 : result < 0 ? errno : -1;
}

CALL(poll)
{
    struct pollfd fd = {t->pipe[0], POLLIN, 0};
    return ended(poll(&fd, 1, CALL_MS), 0);
}

static inline int do_ppoll(const call_things *t, const sigset_t *mask)
{
    struct pollfd fd = {t->pipe[0], POLLIN, 0};
    struct timespec time = call_time();
    return ended(ppoll(&fd, 1, &time, mask), 0);
}

static inline int do_pselect(const call_things *t, const sigset_t *mask)
{
    fd_set set;
    struct timespec time = call_time();
    FD_ZERO(&set);
    FD_SET(t->pipe[0], &set);
    return ended(pselect(t->pipe[0] + 1, &set, NULL, NULL, &time, mask), 0);
}

static inline const sigset_t *no_signals(void)
{
    static sigset_t mask;
    sigemptyset(&mask);
    return &mask;
}

CALL(ppoll)
{
    return do_ppoll(t, NULL);
}

CALL(ppoll_mask)
{
    return do_ppoll(t, no_signals());
}

CALL(select)
{
    fd_set set;
    struct timeval time = {0, CALL_MS * 1000};
    FD_ZERO(&set);
    FD_SET(t->pipe[0], &set);
    return ended(select(t->pipe[0] + 1, &set, NULL, NULL, &time), 0);
}

CALL(pselect)
{
    return do_pselect(t, NULL);
}

CALL(pselect_mask)
{
    return do_pselect(t, no_signals());
}

static inline int make_epoll(const call_things *t)
{
    struct epoll_event event = {.events = EPOLLIN};
    int fd = epoll_create1(0);
    epoll_ctl(fd, EPOLL_CTL_ADD, t->pipe[0], &event);
    return fd;
}

CALL(epoll_wait)
{
    struct epoll_event event;
    return ended(epoll_wait(make_epoll(t), &event, 1, CALL_MS), 0);
}

CALL(epoll_pwait)
{
    struct epoll_event event;
    return ended(epoll_pwait(make_epoll(t), &event, 1, CALL_MS, NULL), 0);
}

CALL(nanosleep)
{
    struct timespec time = call_time();
    return ended(nanosleep(&time, NULL), 0);
}

CALL(nanosleep_rest)
{
    struct timespec time = call_time();
    return ended(nanosleep(&time, &time), 0);
}

CALL(clock_nanosleep)
{
    struct timespec time = call_time();
    return clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
}

CALL(clock_nanosleep_abs)
{
    struct timespec time = call_end(CLOCK_MONOTONIC);
    return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

CALL(usleep)
{
    return ended(usleep(CALL_MS * 1000), 0);
}

CALL(sleep)
{
    uint64_t begin = mc_now_ns(); /* what sleep() returns is rounded */
    sleep(1);
    return mc_now_ns() - begin >= 1000000000u ? 0 : EINTR;
}

CALL(mutex)
{
    return pthread_mutex_lock(&t->mutex);
}

END(mutex)
{
    pthread_mutex_unlock(&t->mutex);
}

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
    struct timespec time = call_end(CLOCK_REALTIME);
    pthread_mutex_lock(&own);
    int error = pthread_cond_timedwait(&t->condition, &own, &time);
    return error == ETIMEDOUT ? 0 : error ? error : -1;
}

CALL(sem_wait)
{
    return ended(sem_wait(&t->semaphore), 0);
}

END(sem_wait)
{
    sem_post(&t->semaphore);
}

CALL(sem_timedwait)
{
    struct timespec time = call_end(CLOCK_REALTIME);
    return sem_timedwait(&t->semaphore, &time) == 0 ? -1 : errno == ETIMEDOUT ? 0 : errno;
}

CALL(futex)
{
    struct timespec time = call_time();
    long result = syscall(SYS_futex, &t->flag, 0 /* FUTEX_WAIT */, 0, &time, NULL, 0);
    return result == 0 ? -1 : errno == ETIMEDOUT ? 0 : errno;
}

CALL(read)
{
    char byte;
    return ended(read(t->pipe[0], &byte, 1), 1);
}

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

static inline int timed_out(ssize_t n)
{
    return n >= 0 ? -1 : errno == EAGAIN ? 0 : errno;
}

CALL(read_timeout)
{
    char byte;
    return timed_out(read(limited_socket(t), &byte, 1));
}

CALL(recv_timeout)
{
    char byte;
    return timed_out(recv(limited_socket(t), &byte, 1, 0));
}

CALL(recvmsg_timeout)
{
    char byte;
    struct iovec vector = {&byte, 1};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    return timed_out(recvmsg(limited_socket(t), &message, 0));
}

CALL(send_timeout)
{
    static char block[4096];
    int fd = limited_socket(t);
    while (send(fd, block, sizeof block, MSG_DONTWAIT) > 0)
        ;
    return timed_out(send(fd, block, sizeof block, 0));
}

CALL(accept)
{
    return accept(t->listener, NULL, NULL) >= 0 ? 0 : errno;
}

static inline int connect_to(const call_things *t)
{
    struct sockaddr_un name;
    socklen_t size = sizeof name;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    getsockname(t->listener, (struct sockaddr *)&name, &size);
    return connect(fd, (struct sockaddr *)&name, size);
}

END(accept)
{
    if (connect_to(t) != 0)
        abort();
}

/* The listener's queue holds one; the second waits. */
CALL(connect)
{
    return connect_to(t) != 0 || connect_to(t) != 0 ? errno : 0;
}

END(connect)
{
    accept(t->listener, NULL, NULL);
}

static inline sigset_t own_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return set;
}

CALL(sigtimedwait)
{
    struct timespec time = call_time();
    sigset_t set = own_signals();
    return sigtimedwait(&set, NULL, &time) >= 0 ? -1 : errno == EAGAIN ? 0 : errno;
}

CALL(sigwait)
{
    int signal;
    sigset_t set = own_signals();
    return sigwait(&set, &signal);
}

CALL(sigwaitinfo)
{
    sigset_t set = own_signals();
    return ended(sigwaitinfo(&set, NULL), SIGUSR1);
}

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

END(by_signal)
{
    kill(pid, SIGUSR1);
}

CALL(semop)
{
    struct sembuf take = {0, -1, 0};
    return ended(semop(t->sysv_sem, &take, 1), 0);
}

CALL(semtimedop)
{
    struct sembuf take = {0, -1, 0};
    struct timespec time = call_time();
    return semtimedop(t->sysv_sem, &take, 1, &time) == 0 ? -1 : errno == EAGAIN ? 0 : errno;
}

END(semop)
{
    semop(t->sysv_sem, &(struct sembuf){0, 1, 0}, 1);
}

struct short_message {
    long type;
    char text[8];
};

CALL(msgrcv)
{
    struct short_message message;
    return msgrcv(t->sysv_queue, &message, sizeof message.text, 0, 0) >= 0 ? 0 : errno;
}

END(msgrcv)
{
    struct short_message message = {1, "hello"};
    msgsnd(t->sysv_queue, &message, sizeof message.text, 0);
}

static inline int open_again(const call_things *t)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", t->locked_file);
    return open(path, O_RDWR);
}

CALL(flock)
{
    return ended(flock(open_again(t), LOCK_EX), 0);
}

END(flock)
{
    flock(t->locked_file, LOCK_UN);
}

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
