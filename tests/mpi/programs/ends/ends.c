/* A program that ends, or begins, as argv[1] says; what it prints tells that nothing came between. */
#define _GNU_SOURCE
#include "../ranks.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void flags(const char *when)
{
    int initialized = -1, finalized = -1, version, subversion, length;
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    MPI_Get_version(&version, &subversion);
    MPI_Get_library_version(library, &length);
    say("%s initialized %d, finalized %d, version %d.%d, %d", when, initialized, finalized, version, subversion,
        length == (int)strlen(library));
}

static void work(const char *when)
{
    int one = 1, sum = 0;
    for (int i = 0; i < 10; i++)
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("rank %d of %d: %s %d\n", rank, size, when, sum);
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void children(void)
{
    int status = -1;
    char line[64] = "";
    pid_t child = fork();
    if (child == 0)
        exit(7); /* with the functions of atexit, and destructors */
    waitpid(child, &status, 0);
    say("child exited %d with %d", WIFEXITED(status), WEXITSTATUS(status));
    child = fork();
    if (child == 0) {
        execlp("sh", "sh", "-c", "exit 8", (char *)NULL);
        _exit(99);
    }
    waitpid(child, &status, 0);
    say("command exited %d with %d", WIFEXITED(status), WEXITSTATUS(status));
    status = system("exit 9");
    say("system gave %d", WEXITSTATUS(status));
    FILE *pipe = popen("echo heard", "r");
    if (pipe == NULL || fgets(line, sizeof line, pipe) == NULL)
        line[0] = '\n';
    printf("rank %d: popen gave %s", rank, line);
    if (pipe != NULL)
        pclose(pipe);
    fflush(stdout);
}

static void abort_all(int signal)
{
    (void)signal;
    MPI_Abort(MPI_COMM_WORLD, 12);
}

/* As programs do that say where they failed; what does not fit on the stack meets a page that nobody may touch. */
static void abort_on_stack(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *room = mmap(NULL, page + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t stack = {.ss_sp = room + page, .ss_size = size};
    struct sigaction action = {.sa_handler = abort_all, .sa_flags = SA_ONSTACK};
    if (room != MAP_FAILED && mprotect(room, page, PROT_NONE) == 0 && sigaltstack(&stack, NULL) == 0)
        sigaction(SIGSEGV, &action, NULL); /* else the kernel wants more for itself */
    *(volatile int *)8 = 0;
}

/* The way to end of one rank; the others wait for what their launcher does. */
static void end_badly(const char *way, size_t stack_bytes)
{
    signal(SIGALRM, SIG_DFL);
    alarm(30);
    if (rank != size - 1)
        for (;;)
            pause();
    if (is(way, "term"))
        raise(SIGTERM);
    if (is(way, "kill"))
        raise(SIGKILL);
    if (is(way, "segv"))
        *(volatile int *)8 = 0;
    if (is(way, "abort"))
        abort();
    if (is(way, "abort-self"))
        MPI_Abort(MPI_COMM_SELF, 11);
    if (is(way, "abort-world"))
        MPI_Abort(MPI_COMM_WORLD, 9);
    if (is(way, "abort-small"))
        abort_on_stack(stack_bytes);
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "";
    rank = -1;
    flags("before");
    if (is(way, "never"))
        return 3;
    begin(&argc, &argv);
    flags("between");
    work("sum");
    if (is(way, "children"))
        children();
    if (is(way, "_exit"))
        _exit(4);
    if (is(way, "return"))
        return 5;
    if (is(way, "quick_exit"))
        quick_exit(6);
    if (is(way, "exec")) {
        execlp("sh", "sh", "-c", "exit 10", (char *)NULL);
        return 99;
    }
    if (!is(way, "") && !is(way, "children") && !is(way, "twice"))
        end_badly(way, argc > 2 ? strtoul(argv[2], NULL, 10) : 0);
    work("last sum");
    MPI_Finalize();
    if (is(way, "twice"))
        MPI_Finalize(); /* ends the job */
    flags("after");
    return 0;
}
