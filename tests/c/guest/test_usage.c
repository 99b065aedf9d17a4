/* What a process tells of itself is told to be there only when all of it is. Its threads are make-believe. */
#include "../support/check.h"
#include "guest/hooks.h"

#include <errno.h>
#include <string.h>

static mc_usage used;
static int n_looks, n_without_room, is_uncounted;

int mc_proc_threads(int pid, int *tids, int n_max, int *n_left)
{
    n_looks += pid > 0 && n_max >= 3;
    CHECK(!used.is_known);
    for (int i = 0; i < 3; i++)
        tids[i] = i;
    errno = ENOENT;
    *n_left += n_without_room;
    return 3;
}

/* One of them has ended meanwhile. */
ssize_t mc_proc_read_text(const char *path, char *text, size_t size)
{
    static const char sched[] = "x (1, #threads: 3)\nse.nr_migrations                :                   14\n";
    static const char counted[] = "18446744073709551615 7000000000 33\n", uncounted[] = "0 0 0\n";
    const char *schedstat = is_uncounted ? uncounted : counted;
    int is_stat = strstr(path, "/schedstat") != NULL;
    size_t length = is_stat ? strlen(schedstat) + 1 : sizeof sched;
    CHECK(!used.is_known && size >= length);
    text[0] = '\0';
    if (strncmp(path, "/proc/self/task/1/sched", 23) == 0)
        return -1;
    memcpy(text, is_stat ? schedstat : sched, length);
    return (ssize_t)length - 1;
}

int main(void)
{
    errno = 4321;
    mc_usage_read(&used, 1);
    CHECK(used.is_known && used.n_migrating == 2 && used.migrations == 28 && used.minor_faults > 0);
    CHECK(used.n_scheduled == 2 && used.run_delay_ns == 14000000000);
    CHECK(n_looks == 1);
    is_uncounted = 1; /* by a kernel without SCHEDSTATS */
    mc_usage_read(&used, 1);
    CHECK(used.is_known && used.n_migrating == 2 && used.n_scheduled == 0 && used.run_delay_ns == 0);
    n_without_room = 1; /* those of some threads would say too little */
    mc_usage_read(&used, 1);
    CHECK(used.is_known && used.n_migrating == 0 && used.migrations == 0 && used.n_scheduled == 0);
    mc_usage_read(&used, 0);
    CHECK(used.is_known && used.n_migrating == 0 && used.migrations == 0 && used.minor_faults > 0);
    CHECK(used.n_scheduled == 0 && used.run_delay_ns == 0);
    CHECK(n_looks == 3);
    CHECK(errno == 4321);
    return n_failed;
}
