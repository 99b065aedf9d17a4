/* Preloaded: where the program's threads are, every millisecond of processor time. Program counters stand in the file
   <PLACES_FOLDER>/<pid>, 8 bytes each, until 0. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

enum { N_SAMPLES = 1 << 16 };

static uint64_t *samples;
static uint64_t n_samples;

static void take_sample(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    uint64_t i = __atomic_fetch_add(&n_samples, 1, __ATOMIC_RELAXED);
    if (i < N_SAMPLES)
        samples[i] = (uint64_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
}

__attribute__((constructor)) static void begin(void)
{
    char name[4096];
    const char *folder = getenv("PLACES_FOLDER");
    struct sigaction action = {.sa_sigaction = take_sample, .sa_flags = SA_SIGINFO | SA_RESTART};
    struct itimerval often = {{0, 1000}, {0, 1000}};
    snprintf(name, sizeof name, "%s/%d", folder ? folder : ".", (int)getpid());
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ftruncate(fd, N_SAMPLES * sizeof *samples) != 0)
        return;
    samples = mmap(NULL, N_SAMPLES * sizeof *samples, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (samples == MAP_FAILED || sigaction(SIGPROF, &action, NULL) != 0)
        return;
    setitimer(ITIMER_PROF, &often, NULL);
}
