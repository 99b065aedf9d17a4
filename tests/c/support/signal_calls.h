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

static inline int call_poll(call_things *t)
{
    struct pollfd fd = {t->pipe[0], POLLIN, 0};
    return ended(poll(&fd, 1, CALL_MS), 0);
}

static inline int call_ppoll(call_things *t)
{
    struct pollfd fd = {t->pipe[0], POLLIN, 0};
    struct timespec time = call_time();
    return ended(ppoll(&fd, 1, &time, NULL), 0);
}

static inline int call_ppoll_mask(call_things *t)
{
    struct pollfd fd = {t->pipe[0], POLLIN, 0};
    struct timespec time = call_time();
    sigset_t mask;
    sigemptyset(&mask);
    return ended(ppoll(&fd, 1, &time, &mask), 0);
}

static inline int call_select(call_things *t)
{
    fd_set set;
    struct timeval time = {0, CALL_MS * 1000};
    FD_ZERO(&set);
    FD_SET(t->pipe[0], &set);
    return ended(select(t->pipe[0] + 1, &set, NULL, NULL, &time), 0);
}

static inline int call_pselect(call_things *t)
{
    fd_set set;
    struct timespec time = call_time();
    FD_ZERO(&set);
    FD_SET(t->pipe[0], &set);
    return ended(pselect(t->pipe[0] + 1, &set, NULL, NULL, &time, NULL), 0);
}

static inline int call_pselect_mask(call_things *t)
{
    fd_set set;
    struct timespec time = call_time();
    sigset_t mask;
    sigemptyset(&mask);
    FD_ZERO(&set);
    FD_SET(t->pipe[0], &set);
    return ended(pselect(t->pipe[0] + 1, &set, NULL, NULL, &time, &mask), 0);
}

static inline int call_epoll_wait(call_things *t)
{
    struct epoll_event event = {.events = EPOLLIN};
    int fd = epoll_create1(0);
    epoll_ctl(fd, EPOLL_CTL_ADD, t->pipe[0], &event);
    return ended(epoll_wait(fd, &event, 1, CALL_MS), 0);
}

static inline int call_epoll_pwait(call_things *t)
{
    struct epoll_event event = {.events = EPOLLIN};
    int fd = epoll_create1(0);
    epoll_ctl(fd, EPOLL_CTL_ADD, t->pipe[0], &event);
    return ended(epoll_pwait(fd, &event, 1, CALL_MS, NULL), 0);
}

static inline int call_nanosleep(call_things *t)
{
    (void)t;
    struct timespec time = call_time();
    return ended(nanosleep(&time, NULL), 0);
}

static inline int call_nanosleep_rest(call_things *t)
{
    (void)t;
    struct timespec time = call_time();
    return ended(nanosleep(&time, &time), 0);
}

static inline int call_clock_nanosleep(call_things *t)
{
    (void)t;
    struct timespec time = call_time();
    return clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
}

static inline int call_clock_nanosleep_abs(call_things *t)
{
    (void)t;
    struct timespec time = call_end(CLOCK_MONOTONIC);
    return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

static inline int call_usleep(call_things *t)
{
    (void)t;
    return ended(usleep(CALL_MS * 1000), 0);
}

static inline int call_sleep(call_things *t)
{
    (void)t;
    uint64_t begin = mc_now_ns(); /* what sleep() returns is rounded */
    sleep(1);
    return mc_now_ns() - begin >= 1000000000u ? 0 : EINTR;
}

static inline int call_mutex(call_things *t)
{
    return pthread_mutex_lock(&t->mutex);
}

static inline void end_mutex(call_things *t, pid_t pid)
{
    (void)pid;
    pthread_mutex_unlock(&t->mutex);
}

static inline int call_cond_wait(call_things *t)
{
    pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&own);
    int error = pthread_cond_wait(&t->condition, &own);
    return error ? error : t->flag ? 0 : -1;
}

static inline void end_cond_wait(call_things *t, pid_t pid)
{
    (void)pid;
    t->flag = 1;
    pthread_cond_broadcast(&t->condition);
}

static inline int call_cond_timedwait(call_things *t)
{
    pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
    struct timespec time = call_end(CLOCK_REALTIME);
    pthread_mutex_lock(&own);
    int error = pthread_cond_timedwait(&t->condition, &own, &time);
    return error == ETIMEDOUT ? 0 : error ? error : -1;
}

static inline int call_sem_wait(call_things *t)
{
    return ended(sem_wait(&t->semaphore), 0);
}

static inline void end_sem_wait(call_things *t, pid_t pid)
{
    (void)pid;
    sem_post(&t->semaphore);
}

static inline int call_sem_timedwait(call_things *t)
{
    struct timespec time = call_end(CLOCK_REALTIME);
    return sem_timedwait(&t->semaphore, &time) == 0 ? -1 : errno == ETIMEDOUT ? 0 : errno;
}

static inline int call_futex(call_things *t)
{
    struct timespec time = call_time();
    long result = syscall(SYS_futex, &t->flag, 0 /* FUTEX_WAIT */, 0, &time, NULL, 0);
    return result == 0 ? -1 : errno == ETIMEDOUT ? 0 : errno;
}

static inline int call_read(call_things *t)
{
    char byte;
    return ended(read(t->pipe[0], &byte, 1), 1);
}

static inline void end_read(call_things *t, pid_t pid)
{
    (void)pid;
    if (write(t->pipe[1], "x", 1) != 1)
        abort();
}

static inline void limit_socket(call_things *t)
{
    struct timeval time = {0, CALL_MS * 1000};
    setsockopt(t->pair[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    setsockopt(t->pair[0], SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
}

static inline int timed_out(ssize_t n)
{
    return n >= 0 ? -1 : errno == EAGAIN ? 0 : errno;
}

static inline int call_read_timeout(call_things *t)
{
    char byte;
    limit_socket(t);
    return timed_out(read(t->pair[0], &byte, 1));
}

static inline int call_recv_timeout(call_things *t)
{
    char byte;
    limit_socket(t);
    return timed_out(recv(t->pair[0], &byte, 1, 0));
}

static inline int call_recvmsg_timeout(call_things *t)
{
    char byte;
    struct iovec vector = {&byte, 1};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    limit_socket(t);
    return timed_out(recvmsg(t->pair[0], &message, 0));
}

static inline int call_send_timeout(call_things *t)
{
    static char block[4096];
    limit_socket(t);
    while (send(t->pair[0], block, sizeof block, MSG_DONTWAIT) > 0)
        ;
    return timed_out(send(t->pair[0], block, sizeof block, 0));
}

static inline int call_accept(call_things *t)
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

static inline void end_accept(call_things *t, pid_t pid)
{
    (void)pid;
    if (connect_to(t) != 0)
        abort();
}

/* The listener's queue holds one; the second waits. */
static inline int call_connect(call_things *t)
{
    return connect_to(t) != 0 || connect_to(t) != 0 ? errno : 0;
}

static inline void end_connect(call_things *t, pid_t pid)
{
    (void)pid;
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

static inline int call_sigtimedwait(call_things *t)
{
    (void)t;
    struct timespec time = call_time();
    sigset_t set = own_signals();
    return sigtimedwait(&set, NULL, &time) >= 0 ? -1 : errno == EAGAIN ? 0 : errno;
}

static inline int call_sigwait(call_things *t)
{
    (void)t;
    int signal;
    sigset_t set = own_signals();
    return sigwait(&set, &signal);
}

static inline int call_sigwaitinfo(call_things *t)
{
    (void)t;
    sigset_t set = own_signals();
    return ended(sigwaitinfo(&set, NULL), SIGUSR1);
}

static inline int call_pause(call_things *t)
{
    (void)t;
    signal(SIGUSR1, on_own_signal);
    pause();
    return n_own_signals == 1 ? 0 : EINTR;
}

static inline int call_sigsuspend(call_things *t)
{
    (void)t;
    sigset_t set;
    signal(SIGUSR1, on_own_signal);
    own_signals();
    sigemptyset(&set);
    sigsuspend(&set);
    return n_own_signals == 1 ? 0 : EINTR;
}

static inline void end_by_signal(call_things *t, pid_t pid)
{
    (void)t;
    kill(pid, SIGUSR1);
}

static inline int call_semop(call_things *t)
{
    struct sembuf take = {0, -1, 0};
    return ended(semop(t->sysv_sem, &take, 1), 0);
}

static inline int call_semtimedop(call_things *t)
{
    struct sembuf take = {0, -1, 0};
    struct timespec time = call_time();
    return semtimedop(t->sysv_sem, &take, 1, &time) == 0 ? -1 : errno == EAGAIN ? 0 : errno;
}

static inline void end_semop(call_things *t, pid_t pid)
{
    (void)pid;
    semop(t->sysv_sem, &(struct sembuf){0, 1, 0}, 1);
}

struct short_message {
    long type;
    char text[8];
};

static inline int call_msgrcv(call_things *t)
{
    struct short_message message;
    return msgrcv(t->sysv_queue, &message, sizeof message.text, 0, 0) >= 0 ? 0 : errno;
}

static inline void end_msgrcv(call_things *t, pid_t pid)
{
    (void)pid;
    struct short_message message = {1, "hello"};
    msgsnd(t->sysv_queue, &message, sizeof message.text, 0);
}

static inline int open_again(const call_things *t)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", t->locked_file);
    return open(path, O_RDWR);
}

static inline int call_flock(call_things *t)
{
    return ended(flock(open_again(t), LOCK_EX), 0);
}

static inline void end_flock(call_things *t, pid_t pid)
{
    (void)pid;
    flock(t->locked_file, LOCK_UN);
}

static inline int call_waitpid(call_things *t)
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
