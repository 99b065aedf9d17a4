#define _GNU_SOURCE
#include "common/threads.h"

#include <signal.h>

int mc_thread_start(pthread_t *thread, size_t stack_bytes, int taken, void *(*run)(void *), void *data)
{
    pthread_attr_t attributes;
    sigset_t blocked, before;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, stack_bytes);
    sigfillset(&blocked);
    if (taken)
        sigdelset(&blocked, taken);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int error = pthread_create(thread, &attributes, run, data);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}
