/* What signals do to system calls: `calls plain|gate [threads]` prints a table, `race plain|gate` counts;
   the others say how a program fares that lives on signals. */
#include "../support/node.h"
#include "../support/signal_calls.h"

#include <sys/mman.h>

enum { GATE_RACE_CALLS = 3000, N_EXCHANGES = 20000, N_RACE_CALLS = 9, N_MASK_CALLS = 4 };

typedef struct common {
    mc_segment segment;
    call_things things;
    volatile int result, is_ready, is_done;
} common;

static volatile sig_atomic_t n_plain, gate_signal;

static void on_plain(int signal)
{
    (void)signal;
    n_plain++;
}

/* The gate, or what a signal handler with SA_RESTART alone would do. */
static void install(mc_segment *segment, const char *mode)
{
    if (strcmp(mode, "gate") == 0) {
        CHECK(mc_gate_install(segment) == MC_OK);
    } else {
        struct sigaction action = {.sa_handler = on_plain, .sa_flags = SA_RESTART};
        sigaction(SIGRTMAX, &action, NULL);
        segment->gate.signal = SIGRTMAX;
    }
    gate_signal = segment->gate.signal;
}

static common *map_common(void)
{
    void *map = mmap(NULL, sizeof(common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        exit(99);
    return map;
}

static void make_things(call_things *t)
{
    pthread_mutexattr_t mutex;
    pthread_condattr_t condition;
    struct sockaddr_un name = {.sun_family = AF_UNIX}; /* bound to a name the kernel chooses */
    CHECK(pipe(t->pipe) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, t->pair) == 0);
    t->listener = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(t->listener, (struct sockaddr *)&name, sizeof(sa_family_t)) == 0 && listen(t->listener, 0) == 0);
    t->sysv_sem = semget(IPC_PRIVATE, 1, 0600);
    t->sysv_queue = msgget(IPC_PRIVATE, 0600);
    t->locked_file = memfd_create("locked", 0);
    flock(t->locked_file, LOCK_EX);
    pthread_mutexattr_init(&mutex);
    pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&t->mutex, &mutex);
    pthread_mutex_lock(&t->mutex);
    pthread_condattr_init(&condition);
    pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED);
    pthread_cond_init(&t->condition, &condition);
    sem_init(&t->semaphore, 1, 0);
    t->flag = 0;
}

static void drop_things(call_things *t)
{
    int fds[] = {t->pipe[0], t->pipe[1], t->pair[0], t->pair[1], t->listener, t->locked_file};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        close(fds[i]);
    semctl(t->sysv_sem, 0, IPC_RMID);
    msgctl(t->sysv_queue, IPC_RMID, NULL);
}

static void *sleep_long(void *data)
{
    for (;;)
        pause();
    return data;
}

static void be_caller(common *c, const sleeping_call *call, const char *mode, int with_threads)
{
    pthread_t thread;
    if (with_threads) { /* the C library then takes another path to the kernel */
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, &before);
        pthread_create(&thread, NULL, sleep_long, NULL);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    install(&c->segment, mode);
    c->is_ready = 1;
    c->result = call->call(&c->things);
    c->is_done = 1;
    _exit(0);
}

static int is_asleep(pid_t pid)
{
    mc_proc_stat stat;
    return mc_proc_read_stat(&stat, pid) == MC_OK && stat.state == 'S';
}

static void signal_sleeper(pid_t pid, int signal)
{
    mc_proc_thread thread;
    siginfo_t info = {.si_signo = signal, .si_code = SI_QUEUE};
    CHECK(mc_proc_read_thread(&thread, pid, pid, signal) == MC_OK);
    info.si_pid = getpid();
    info.si_uid = getuid();
    info.si_value.sival_ptr = (void *)(uintptr_t)MC_GATE_VALUE(thread.n_sleeps - 1); /* as seen before */
    CHECK(syscall(SYS_rt_tgsigqueueinfo, pid, pid, signal, &info) == 0);
}

/* Sleeping threads are never signalled by the agent; here they are, so that what the race does rarely happens
   surely. */
static void try_call(const sleeping_call *call, const char *mode, int with_threads)
{
    common *c = map_common();
    make_things(&c->things);
    pid_t pid = child();
    if (pid == 0)
        be_caller(c, call, mode, with_threads);
    WAIT_FOR(c->is_ready && is_asleep(pid), 20);
    nap_ms(3);
    CHECK(is_asleep(pid) && !c->is_done);
    signal_sleeper(pid, c->segment.gate.signal);
    if (call->end) {
        nap_ms(15);
        if (!c->is_done)
            call->end(&c->things, pid);
    }
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    const char *what = c->result == 0 ? "goes on" : c->result == EINTR ? "EINTR" : strerror(c->result);
    printf("%s | %s\n", call->name, c->is_done ? what : "died");
    drop_things(&c->things);
    munmap(c, sizeof *c);
}

static void compute_a_while(unsigned *random)
{
    *random = *random * 1103515245u + 12345u;
    for (volatile unsigned i = (*random >> 16) % 20000; i > 0; i--)
        ;
}

static int short_call(int which, int fd, int epoll)
{
    struct timespec time = {0, 50000};
    struct timeval old_time = {0, 50};
    struct pollfd poll_fd = {fd, POLLIN, 0};
    struct epoll_event event;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    switch (which) {
    case 0:
        return nanosleep(&time, &time);
    case 1:
        return poll(&poll_fd, 1, 1);
    case 2:
        return select(0, NULL, NULL, NULL, &old_time);
    case 3:
        return epoll_wait(epoll, &event, 1, 1);
    case 4:
        return ppoll(&poll_fd, 1, &time, NULL);
    case 5:
        return usleep(50);
    case 6:
        errno = clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
        return errno ? -1 : 0;
    case 7:
        return sigtimedwait(&set, NULL, &time);
    default:
        return pselect(0, NULL, NULL, NULL, &time, NULL);
    }
}

typedef struct race_thread {
    unsigned random;
    int n_interrupted, n_failed;
} race_thread;

static void *race(void *data)
{
    race_thread *own = data;
    struct epoll_event event = {.events = EPOLLIN};
    int fds[2], epoll = epoll_create1(0);
    CHECK(pipe(fds) == 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fds[0], &event) == 0);
    for (int i = 0; i < GATE_RACE_CALLS; i++) {
        compute_a_while(&own->random);
        errno = 0;
        int result = short_call(i % N_RACE_CALLS, fds[0], epoll);
        own->n_interrupted += result < 0 && errno == EINTR;
        own->n_failed += result < 0 && errno != EINTR && errno != EAGAIN;
    }
    return NULL;
}

/* The agent's own way of telling threads, at random instants and as fast as it can; some pauses last into the next. */
static void be_teller(common *c, pid_t pid)
{
    mc_rank rank = {.segment = &c->segment, .pid = pid, .alive = 1};
    int n_untold;
    while (!told_to_stop) {
        c->segment.gate.deadline_ns = mc_now_ns() + (uint64_t)(random() % 400000);
        mc_signal_running_threads(&rank, c->segment.gate.signal, &n_untold);
        usleep(30);
    }
    _exit(0);
}

static void run_race(const char *mode, int n_threads)
{
    common *c = map_common();
    race_thread threads[2] = {{1, 0, 0}, {2, 0, 0}};
    pthread_t other;
    pid_t own_pid = getpid();
    install(&c->segment, mode);
    pid_t teller = child();
    if (teller == 0)
        be_teller(c, own_pid);
    if (n_threads == 2)
        CHECK(pthread_create(&other, NULL, race, &threads[1]) == 0);
    race(&threads[0]);
    if (n_threads == 2)
        pthread_join(other, NULL);
    end_process(teller, SIGTERM);
    CHECK(threads[0].n_failed + threads[1].n_failed == 0);
    printf("signals %d\n", (int)c->segment.gate.n_acks + (int)n_plain);
    printf("interrupted %d\n", threads[0].n_interrupted + threads[1].n_interrupted);
}

/* The C library puts its own handler in place when a program first cancels a thread. */
static void run_cancel(const char *mode)
{
    common *c = map_common();
    pthread_t thread;
    install(&c->segment, mode);
    signal_sleeper(getpid(), c->segment.gate.signal);
    printf("before %d\n", (int)c->segment.gate.n_acks);
    CHECK(pthread_create(&thread, NULL, sleep_long, NULL) == 0 && pthread_cancel(thread) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    signal_sleeper(getpid(), c->segment.gate.signal);
    printf("after %d\n", (int)c->segment.gate.n_acks - 1);
}

/* Question and answer; a lost one would be the end. Waits by the book. */
static int exchange_signals(pid_t other, int begins)
{
    sigset_t none;
    unsigned random = 3;
    int n = 0;
    uint64_t end = mc_now_ns() + 20000000000u;
    sigemptyset(&none);
    while (!begins || (n < N_EXCHANGES && mc_now_ns() < end)) {
        compute_a_while(&random);
        if (begins)
            kill(other, SIGUSR1);
        n++;
        while (n_own_signals < n)
            sigsuspend(&none);
        if (!begins)
            kill(other, SIGUSR1);
    }
    return n;
}

static void run_suspend(const char *mode)
{
    common *c = map_common();
    pid_t own_pid = getpid(), other, teller;
    signal(SIGUSR1, on_own_signal);
    own_signals();
    if ((other = child()) == 0)
        exchange_signals(own_pid, 0);
    install(&c->segment, mode);
    if ((teller = child()) == 0)
        be_teller(c, own_pid);
    int n = exchange_signals(other, 1);
    end_process(teller, SIGTERM);
    end_process(other, SIGKILL);
    printf("signals %d\nsent %d\nhandled %d\n", (int)c->segment.gate.n_acks, n, (int)n_own_signals);
}

/* The gate's signal comes as this handler returns: at the instruction behind the call that it has ended. */
static void on_signal_then_gate(int signal)
{
    uint64_t gate = (uint64_t)1 << (gate_signal - 1);
    (void)signal;
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &gate, NULL, sizeof gate);
    signal_sleeper(getpid(), gate_signal);
}

static int call_with_mask(int which, const sigset_t *mask)
{
    struct timespec time = {20, 0};
    struct epoll_event event;
    switch (which) {
    case 0:
        return sigsuspend(mask);
    case 1:
        return ppoll(NULL, 0, &time, mask);
    case 2:
        return pselect(0, NULL, NULL, NULL, &time, mask);
    default:
        return epoll_pwait(epoll_create1(0), &event, 1, 20000, mask);
    }
}

/* Each call that lets signals in for its time: does the signal end it, or the alarm that comes long after? */
static void run_woken(const char *mode)
{
    common *c = map_common();
    sigset_t none;
    sigemptyset(&none);
    signal(SIGUSR1, on_signal_then_gate);
    signal(SIGALRM, on_own_signal);
    install(&c->segment, mode);
    for (int which = 0; which < N_MASK_CALLS; which++) {
        own_signals();
        raise(SIGUSR1);
        n_own_signals = 0;
        alarm(10);
        int result = call_with_mask(which, &none);
        printf("%s by the %s\n", result < 0 && errno == EINTR ? "ended" : "not ended",
               n_own_signals ? "alarm" : "signal");
    }
    printf("gate %d\n", (int)c->segment.gate.n_acks);
    alarm(TEST_LIMIT_S);
}

int main(int argc, char **argv)
{
    alarm(TEST_LIMIT_S);
    const char *mode = argc > 2 ? argv[2] : "";
    if (argc > 3 && strcmp(argv[1], "calls") == 0)
        for (size_t i = 0; i < sizeof sleeping_calls / sizeof *sleeping_calls; i++)
            try_call(&sleeping_calls[i], mode, strcmp(argv[3], "2") == 0), fflush(stdout);
    else if (argc > 3 && strcmp(argv[1], "race") == 0)
        run_race(mode, atoi(argv[3]));
    else if (argc > 2 && strcmp(argv[1], "cancel") == 0)
        run_cancel(mode);
    else if (argc > 2 && strcmp(argv[1], "suspend") == 0)
        run_suspend(mode);
    else if (argc > 2 && strcmp(argv[1], "woken") == 0)
        run_woken(mode);
    else
        return 98;
    return n_failed;
}
