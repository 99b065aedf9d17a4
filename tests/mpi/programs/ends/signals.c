/* What programs do with signals, one kind a run: lines and exit code are those of a run without mpicoloc. */
#define _GNU_SOURCE
#include "../ranks.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static volatile sig_atomic_t n_handled, n_by_signal[65];

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void compute(double duration_s)
{
    volatile double x = 1.0;
    for (double end_s = now_s() + duration_s; now_s() < end_s;)
        for (int i = 0; i < 1000; i++)
            x = x * 1.0000001 + 1e-9;
}

static void on_signal(int signal)
{
    n_handled++;
    n_by_signal[signal]++;
}

static void handle(int signal, int flags)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
    sigaction(signal, &action, NULL);
}

/* Before MPI_Init, or its threads would take them. */
static void block_all(void)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
}

/* Whatever it may handle, it handles, and nothing comes. */
static void handlers(void)
{
    int n_taken = 0;
    for (int signal = 1; signal <= 64; signal++) {
        struct sigaction action = {.sa_handler = on_signal};
        sigfillset(&action.sa_mask);
        n_taken += signal != SIGCHLD && sigaction(signal, &action, NULL) == 0;
    }
    compute(1);
    say("%d taken, %d handled", n_taken, (int)n_handled);
    for (int signal = 1; signal <= 64; signal++)
        if (n_by_signal[signal])
            say("signal %d came", signal);
}

static void blocked(void)
{
    sigset_t waiting, all;
    sigfillset(&all);
    compute(1);
    sigpending(&waiting);
    int n_waiting = 0;
    for (int signal = 1; signal <= 64; signal++)
        n_waiting += signal != SIGCHLD && sigismember(&waiting, signal) == 1;
    struct timespec none = {0, 0};
    int next = sigtimedwait(&all, NULL, &none);
    say("%d wait, next %d", n_waiting, next == SIGCHLD ? -1 : next);
}

static void *wait_for_signals(void *data)
{
    sigset_t all;
    int signal = 0;
    sigfillset(&all);
    while (signal != SIGUSR2) {
        sigwait(&all, &signal);
        if (signal != SIGCHLD)
            say("sigwait gave %d", signal);
    }
    return data;
}

static void signal_thread(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, wait_for_signals, NULL);
    compute(0.5);
    kill(getpid(), SIGUSR1);
    compute(0.5);
    kill(getpid(), SIGUSR2);
    pthread_join(thread, NULL);
}

static void signal_file(void)
{
    sigset_t all;
    struct signalfd_siginfo info;
    sigfillset(&all);
    sigdelset(&all, SIGCHLD);
    int fd = signalfd(-1, &all, SFD_NONBLOCK);
    compute(1);
    int n_before = (int)read(fd, &info, sizeof info);
    kill(getpid(), SIGUSR1);
    int n_after = (int)read(fd, &info, sizeof info);
    say("signalfd gave %d, then %d", n_before, n_after > 0 ? (int)info.ssi_signo : -1);
}

static volatile int n_cleaned, is_cancellable;

static void clean(void *data)
{
    (void)data;
    __atomic_fetch_add(&n_cleaned, 1, __ATOMIC_RELAXED);
}

static void *to_be_cancelled(void *data)
{
    static char alternate[16][65536];
    int kind = (int)(long)data;
    volatile double x = 1.0;
    struct timespec nap = {0, 100000};
    stack_t stack = {.ss_sp = alternate[kind], .ss_size = sizeof alternate[0]};
    if (kind & 1)
        sigaltstack(&stack, NULL);
    pthread_setcanceltype(kind & 2 ? PTHREAD_CANCEL_ASYNCHRONOUS : PTHREAD_CANCEL_DEFERRED, NULL);
    pthread_cleanup_push(clean, NULL);
    is_cancellable = 1;
    for (;;) {
        x = x * 1.0000001 + 1e-9;
        if (kind & 4)
            nanosleep(&nap, NULL);
        else if (!(kind & 2))
            pthread_testcancel();
    }
    pthread_cleanup_pop(0);
    return NULL;
}

static void cancelling(void)
{
    int n_cancelled = 0;
    for (int i = 0; i < 48; i++) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, NULL, to_be_cancelled, (void *)(long)(i % 8));
        while (!is_cancellable)
            compute(0.0001);
        is_cancellable = 0;
        compute(0.003);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        n_cancelled += result == PTHREAD_CANCELED;
    }
    say("%d cancelled, %d cleaned up", n_cancelled, n_cleaned);
    compute(0.5);
}

static volatile int n_expired;

static void on_timer(union sigval value)
{
    (void)value;
    __atomic_fetch_add(&n_expired, 1, __ATOMIC_RELAXED);
}

static void timer(void)
{
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = on_timer};
    struct itimerspec every = {{0, 5000000}, {0, 5000000}};
    int made = timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &every, NULL) == 0;
    for (int i = 0; i < 1000 && n_expired < 20; i++)
        compute(0.01);
    say("timer made %d, ran %d", made, n_expired >= 20);
    timer_delete(timer);
}

/* Again and again: one that comes before the call it shall end is lost, also without mpicoloc. */
static void alarm_every(long us)
{
    struct itimerval every = {{0, us}, {0, us}};
    handle(SIGALRM, 0);
    setitimer(ITIMER_REAL, &every, NULL);
}

/* A pause ends by the alarm, always. One that the gate's signal meets on its way to sleep ends by that. */
static void alarm_pause(void)
{
    int n_right = 0;
    alarm_every(20000);
    for (int i = 0; i < 40; i++) {
        compute(0.0005 * (i % 8));
        int n_before = n_handled;
        int result = pause();
        n_right += result == -1 && errno == EINTR && n_handled > n_before;
    }
    alarm_every(0);
    say("%s", n_right >= 36 ? "right" : "wrong");
}

/* So do a read, a sleep and a poll, if the handler is not one that restarts. */
static void alarm_breaks(void)
{
    int fds[2], n_read = 0, n_slept = 0, n_polled = 0;
    char byte;
    if (pipe(fds) != 0)
        return;
    struct pollfd fd = {fds[0], POLLIN, 0};
    struct timespec ten = {10, 0};
    alarm_every(20000);
    for (int i = 0; i < 15; i++) {
        compute(0.0005 * i);
        n_read += read(fds[0], &byte, 1) == -1 && errno == EINTR;
        compute(0.0005 * i);
        n_slept += nanosleep(&ten, NULL) == -1 && errno == EINTR;
        compute(0.0005 * i);
        n_polled += poll(&fd, 1, -1) == -1 && errno == EINTR;
    }
    alarm_every(0);
    say("broken %d %d %d", n_read, n_slept, n_polled);
}

static void children(void)
{
    int n_right = 0, status;
    char *words[] = {"sh", "-c", "exit 5", NULL};
    for (int i = 0; i < 20; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            compute(0.01);
            _exit(7);
        }
        compute(0.005);
        n_right += waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 7;
        status = system("exit 3");
        n_right += WIFEXITED(status) && WEXITSTATUS(status) == 3;
        n_right += posix_spawnp(&pid, "sh", NULL, NULL, words, environ) == 0 && waitpid(pid, &status, 0) == pid &&
                   WEXITSTATUS(status) == 5;
    }
    say("%d right", n_right);
}

static sigjmp_buf back;

static void on_fault(int signal)
{
    siglongjmp(back, signal);
}

static void alternate_stack(void)
{
    static char alternate[65536];
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_ONSTACK};
    int *volatile nowhere = NULL;
    volatile int n_faults = 0;
    sigaltstack(&stack, NULL);
    sigaction(SIGSEGV, &action, NULL);
    handle(SIGUSR1, SA_ONSTACK | SA_RESTART);
    for (volatile int i = 0; i < 200; i++) {
        compute(0.003);
        raise(SIGUSR1);
        if (sigsetjmp(back, 1) == 0)
            *nowhere = 1;
        else
            n_faults++;
    }
    say("%d faults, %d handled", n_faults, (int)n_handled);
}

static void sleeping(void)
{
    int n_interrupted = 0;
    struct timespec nap = {0, 50000};
    for (double end_s = now_s() + 3.0; now_s() < end_s;) {
        compute(0.0001);
        n_interrupted += nanosleep(&nap, NULL) != 0;
        n_interrupted += poll(NULL, 0, 1) != 0;
        n_interrupted += select(0, NULL, NULL, NULL, &(struct timeval){0, 100}) != 0;
        n_interrupted += usleep(50) != 0;
    }
    say("%d interrupted", n_interrupted);
}

static const struct {
    const char *name;
    void (*run)(void);
} kinds[] = {
    {"handlers", handlers},           {"blocked", blocked},
    {"signal_thread", signal_thread}, {"signal_file", signal_file},
    {"cancelling", cancelling},       {"timer", timer},
    {"alarm_pause", alarm_pause},     {"alarm_breaks", alarm_breaks},
    {"children", children},           {"alternate_stack", alternate_stack},
    {"sleeping", sleeping},
};

int main(int argc, char **argv)
{
    int provided;
    if (argc > 2 && is(argv[2], "block"))
        block_all();
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    find_place();
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (argc > 1 && is(argv[1], kinds[i].name))
            kinds[i].run();
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 5;
}
