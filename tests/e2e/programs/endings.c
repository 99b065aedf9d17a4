/* A job that tells the signals it ignores, then lives for argv[1] seconds, or until there is a file of that name.
   argv[2] "filter": openat is refused after MPI_Init; "no-init": MPI is linked and not begun. */
#include "../../mpi/programs/ranks.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int refuse_openat(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

static void print_ignored(void)
{
    char line[256];
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, "SigIgn:", 7) == 0)
            fputs(line, stdout);
    if (file)
        fclose(file);
}

int main(int argc, char **argv)
{
    int is_over = 0;
    const char *how = argc > 2 ? argv[2] : "";
    if (is(how, "no-init"))
        return 5;
    begin(&argc, &argv);
    if (rank == 0)
        print_ignored();
    if (is(how, "filter") && !refuse_openat())
        return 3;
    const char *end_file = strchr(argv[1], '/') ? argv[1] : NULL;
    double end = MPI_Wtime() + atof(argv[1]);
    while (!is_over) {
        int mine = end_file ? access(end_file, F_OK) == 0 : MPI_Wtime() >= end;
        MPI_Allreduce(&mine, &is_over, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        usleep(2000);
    }
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
