/* The bubble as a library: its limits, that it stops soon, and that a level is what its file says. */
#define _GNU_SOURCE
#include "bubble/bubble.h"

#include "../support/check.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { N_BYTES = 8 << 20, N_LINES = N_BYTES / MC_BUBBLE_LINE_BYTES };
static const uint64_t NEVER = UINT64_MAX, MS = 1000000;

static void touches_only_its_working_set(mc_bubble *b)
{
    volatile int stop = 0;
    for (size_t i = 0; i < N_LINES; i++)
        b->lines[i].written = UINT64_MAX;
    mc_bubble_run(b, (mc_bubble_setting){1 << 20, 0}, mc_bubble_now_ns() + 30 * MS, &stop);
    CHECK(b->n_touched >= MC_BUBBLE_BLOCK_LINES && b->n_touched % MC_BUBBLE_BLOCK_LINES == 0);
    CHECK(b->lines[(1 << 20) / MC_BUBBLE_LINE_BYTES / 2].written == 0);
    for (size_t i = (1 << 20) / MC_BUBBLE_LINE_BYTES; i < N_LINES; i++)
        CHECK(b->lines[i].written == UINT64_MAX);
}

/* Whatever working set it had before, it writes half of the present one away from what it reads. */
static void reads_and_writes_stay_apart(mc_bubble *b)
{
    static const uint64_t sizes[] = {1 << 20, 100001, 3 << 20, N_BYTES, 64 * 1024};
    volatile int stop = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t n_runs = sizes[i] / MC_BUBBLE_LINE_BYTES / MC_BUBBLE_READS, written = 0;
        mc_bubble_run(b, (mc_bubble_setting){N_BYTES, 0}, mc_bubble_now_ns() + MS, &stop);
        b->i_read = N_LINES; /* its end, which no smaller one has */
        for (size_t j = 0; j < N_LINES; j++)
            b->lines[j].written = UINT64_MAX;
        b->due_ns = 0;
        uint64_t before = b->n_touched;
        while (b->n_touched == before) /* one block only: the next is due in minutes */
            mc_bubble_run(b, (mc_bubble_setting){sizes[i], 1}, mc_bubble_now_ns() + MS, &stop);
        CHECK(b->n_touched == before + MC_BUBBLE_BLOCK_LINES);
        while (written < N_LINES && b->lines[written].written == UINT64_MAX)
            written++;
        uint64_t read = b->i_read - MC_BUBBLE_READS;
        CHECK(written / MC_BUBBLE_WRITES == (read / MC_BUBBLE_READS + n_runs / 2) % n_runs);
    }
}

/* Whatever is asked for, it stays inside its memory: the sanitizer looks on. */
static void takes_any_setting(mc_bubble *b)
{
    static const uint64_t sizes[] = {0, 1, 63, 64 * 1024, 100001, N_BYTES, UINT64_MAX};
    static const double rates[] = {0, 1, 1e3, 1e7, 1e15};
    volatile int stop = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t j = 0; j < sizeof rates / sizeof *rates; j++) {
            uint64_t begin = mc_bubble_now_ns();
            mc_bubble_run(b, (mc_bubble_setting){sizes[i], rates[j]}, begin + MS, &stop);
        }
}

static void silence_touches_nothing(mc_bubble *b)
{
    volatile int stop = 0;
    mc_bubble_run(b, (mc_bubble_setting){0, 0}, mc_bubble_now_ns() + 2 * MS, &stop);
    CHECK(b->n_touched == 0);
    stop = 1;
    mc_bubble_run(b, (mc_bubble_setting){N_BYTES, 0}, NEVER, &stop);
    CHECK(b->n_touched == 0);
}

/* A rate is not passed, and a bubble that stood still does not make up for it. */
static void keeps_its_rate(mc_bubble *b)
{
    volatile int stop = 0;
    mc_bubble_setting slow = {N_BYTES, 1e6};
    mc_bubble_run(b, slow, mc_bubble_now_ns() + 5 * MS, &stop);
    usleep(100000);
    uint64_t before = b->n_touched, begin = mc_bubble_now_ns();
    mc_bubble_run(b, slow, begin + 50 * MS, &stop);
    double due = (double)(mc_bubble_now_ns() - begin) / 1e9 * slow.lines_per_s;
    CHECK((double)(b->n_touched - before) <= due + 4 * 2 * MC_BUBBLE_BLOCK_LINES);
}

typedef struct running {
    mc_bubble bubble;
    mc_bubble_setting setting;
    volatile int stop;
} running;

static void *press(void *data)
{
    running *r = data;
    mc_bubble_run(&r->bubble, r->setting, NEVER, &r->stop);
    return NULL;
}

/* Also at rates at which it mostly waits, and while it is silent. That it takes less than 1 ms is no test for a busy
   machine; that it ends is. */
static void ends_when_told(void)
{
    static const mc_bubble_setting settings[] = {{N_BYTES, 0}, {N_BYTES, 0.5}, {0, 0}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        running r = {.setting = settings[i]};
        pthread_t thread;
        CHECK(mc_bubble_open(&r.bubble, N_BYTES) == MC_BUBBLE_OK);
        CHECK(pthread_create(&thread, NULL, press, &r) == 0);
        usleep(20000);
        r.stop = 1;
        pthread_join(thread, NULL);
        mc_bubble_close(&r.bubble);
    }
}

static void refuses_more_than_there_is(void)
{
    mc_bubble b;
    CHECK(mc_bubble_free_bytes() > 0);
    CHECK(mc_bubble_open(&b, UINT64_C(1) << 50) == MC_BUBBLE_E_MEMORY);
    CHECK(b.lines == NULL);
}

static int write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    return file && fputs(text, file) >= 0 && fclose(file) == 0;
}

#define LEVELS_0_TO_7 \
    "some first line\nlevel 0 0 0.0 1 1 1\nlevel 1 1000 10.5 1 1 1\nlevel 2 2000 20.5 1 1 1\nlevel 3 3000 30.5 1 1 " \
    "1\n" \
    "level 4 4000 40.5 1 1 1\nlevel 5 5000 50.5 1 1 1\nlevel 6 6000 60.5 1 1 1\nlevel 7 7000 70.5 1 1 1\n"

static void reads_levels(void)
{
    const char *path = "levels.txt";
    mc_bubble_levels levels;
    mc_bubble_setting s;
    CHECK(mc_bubble_levels_read(&levels, "nowhere.txt") == MC_BUBBLE_E_FILE);
    CHECK(write_file(path, LEVELS_0_TO_7) && mc_bubble_levels_read(&levels, path) == MC_BUBBLE_E_FORMAT);
    CHECK(write_file(path, LEVELS_0_TO_7 "level 9 1 1\n"));
    CHECK(mc_bubble_levels_read(&levels, path) == MC_BUBBLE_E_FORMAT);
    CHECK(write_file(path, "probe 4096 0.0\nprobe_alone 1.5e8\n" LEVELS_0_TO_7 "level 8 8000 80.5 2 1 3\n"));
    CHECK(mc_bubble_levels_read(&levels, path) == MC_BUBBLE_OK);
    CHECK(levels.slowdown[8] == 2 && levels.low[8] == 1 && levels.high[8] == 3);
    CHECK(levels.probe.working_set_bytes == 4096 && levels.probe.lines_per_s == 0 && levels.probe_lines_per_s == 1.5e8);
    CHECK(mc_bubble_setting_of(&s, &levels, 3.5, 1) == MC_BUBBLE_OK);
    CHECK(s.working_set_bytes == 3500 && fabs(s.lines_per_s - 35.5) < 1e-9);
    CHECK(mc_bubble_setting_of(&s, &levels, 8, 2) == MC_BUBBLE_OK);
    CHECK(s.working_set_bytes == 4000 && fabs(s.lines_per_s - 40.25) < 1e-9);
    CHECK(mc_bubble_setting_of(&s, &levels, 0, 1) == MC_BUBBLE_OK && s.working_set_bytes == 0);
    CHECK(mc_bubble_setting_of(&s, &levels, 8.01, 1) == MC_BUBBLE_E_LEVEL);
    CHECK(mc_bubble_setting_of(&s, &levels, -0.01, 1) == MC_BUBBLE_E_LEVEL);
    CHECK(mc_bubble_setting_of(&s, &levels, NAN, 1) == MC_BUBBLE_E_LEVEL);
    unlink(path);
}

int main(void)
{
    void (*const tests[])(mc_bubble *) = {touches_only_its_working_set, reads_and_writes_stay_apart, takes_any_setting,
                                          silence_touches_nothing, keeps_its_rate};
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        mc_bubble b;
        CHECK(mc_bubble_open(&b, N_BYTES) == MC_BUBBLE_OK);
        tests[i](&b);
        mc_bubble_close(&b);
        CHECK(b.lines == NULL);
    }
    ends_when_told();
    refuses_more_than_there_is();
    reads_levels();
    return n_failed ? 1 : 0;
}
