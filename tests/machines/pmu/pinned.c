/* Takes so many of each processor's counters for itself, as monitoring tools do: pinned N_EVENTS. Ends when killed. */
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct perf_event_attr attr = {
        .size = sizeof attr, .type = PERF_TYPE_HARDWARE, .config = PERF_COUNT_HW_INSTRUCTIONS, .pinned = 1};
    for (int i = 0, n = argc > 1 ? atoi(argv[1]) : 0; i < n; i++)
        if (syscall(SYS_perf_event_open, &attr, -1, 0, -1, 0) < 0) {
            perror("pinned");
            return 1;
        }
    printf("pinned\n");
    fflush(stdout);
    pause();
    return 0;
}
