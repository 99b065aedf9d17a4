// The two jobs of `replay.py` in SimGrid, on the fat-tree of its platform file. Reads the same traffic as replay_ns3.cpp,
// prints the same; SimGrid shares links among flows, so it has no packets (-1 packet-hops) and no lanes.
#include <chrono>
#include <cstdio>
#include <iostream>
#include <simgrid/s4u.hpp>
#include <string>
#include <sys/resource.h>
#include <vector>

namespace sg4 = simgrid::s4u;

struct Phase {
    double n_bytes;
    int n_turns, step;
};

static char content;

static sg4::Mailbox *box(const std::string &job, int src, int dst)
{
    return sg4::Mailbox::by_name(job + std::to_string(src) + ":" + std::to_string(dst));
}

static void exchange(const std::string &job, int rank, int to, int from, double n_bytes)
{
    char *got = nullptr;
    sg4::CommPtr in = box(job, from, rank)->get_async<char>(&got),
                 out = box(job, rank, to)->put_async(&content, n_bytes);
    in->wait();
    out->wait();
}

static void rank_of(std::string job, int rank, int n_ranks, std::vector<Phase> phases)
{
    for (const Phase &phase : phases)
        for (int i = 0; i < phase.n_turns; i++) {
            int shift = (1 + phase.step * i) % n_ranks;
            exchange(job, rank, (rank + shift) % n_ranks, (rank + n_ranks - shift) % n_ranks, phase.n_bytes);
        }
}

static void create_job(const std::string &job)
{
    int n_ranks, n_phases, host;
    std::cin >> n_ranks >> n_phases;
    std::vector<Phase> phases(n_phases);
    for (Phase &phase : phases)
        std::cin >> phase.n_bytes >> phase.n_turns >> phase.step;
    for (int rank = 0; rank < n_ranks; rank++) {
        std::cin >> host;
        sg4::Actor::create(job, sg4::Host::by_name("h" + std::to_string(host)), rank_of, job, rank, n_ranks, phases);
    }
}

int main(int argc, char **argv)
{
    sg4::Engine engine(&argc, argv);
    engine.load_platform(argv[1]);
    double n_levels, word;
    int n_jobs;
    std::cin >> n_levels;
    for (int i = 0; i < 2 * n_levels + 1; i++) // the tree and its rate are those of the platform
        std::cin >> word;
    std::cin >> n_jobs;
    for (int i = 0; i < n_jobs; i++)
        create_job(std::to_string(i) + ":");
    auto start = std::chrono::steady_clock::now();
    engine.run();
    std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    std::printf("%.9f %.6f -1 %ld\n", sg4::Engine::get_clock(), elapsed.count(), usage.ru_maxrss);
    return 0;
}
