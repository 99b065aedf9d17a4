// The two jobs of `replay.py` in SimGrid: a ring of 64 KiB and an all-to-all of 64 KiB a pair, 64 ranks each, on the
// fat-tree of its platform file. Prints the simulated and the elapsed seconds, and the memory in KiB. SimGrid shares links among flows; it has no
// packets and no lanes.
#include <chrono>
#include <cstdio>
#include <simgrid/s4u.hpp>
#include <string>
#include <sys/resource.h>
#include <vector>

namespace sg4 = simgrid::s4u;

static const int n_ranks = 64, n_turns = 100;
static const double n_bytes = 65536;
static char content;

static sg4::Mailbox *box(const std::string &job, int src, int dst)
{
    return sg4::Mailbox::by_name(job + std::to_string(src) + ":" + std::to_string(dst));
}

static void exchange(const std::string &job, int rank, int to, int from)
{
    char *got = nullptr;
    sg4::CommPtr in = box(job, from, rank)->get_async<char>(&got),
                 out = box(job, rank, to)->put_async(&content, n_bytes);
    in->wait();
    out->wait();
}

static void ring(int rank)
{
    for (int i = 0; i < n_turns; i++)
        exchange("ring", rank, (rank + 1) % n_ranks, (rank + n_ranks - 1) % n_ranks);
}

static void all_to_all(int rank)
{
    for (int i = 1; i < n_ranks; i++)
        exchange("all", rank, (rank + i) % n_ranks, (rank + n_ranks - i) % n_ranks);
}

int main(int argc, char **argv)
{
    sg4::Engine engine(&argc, argv);
    engine.load_platform(argv[1]);
    for (int i = 0; i < n_ranks; i++) {
        sg4::Actor::create("ring", sg4::Host::by_name("h" + std::to_string(2 * i)), ring, i);
        sg4::Actor::create("all", sg4::Host::by_name("h" + std::to_string(2 * i + 1)), all_to_all, i);
    }
    auto start = std::chrono::steady_clock::now();
    engine.run();
    std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    std::printf("%.9f %.6f %ld\n", sg4::Engine::get_clock(), elapsed.count(), usage.ru_maxrss);
    return 0;
}
