/* Minimum-weight perfect matching of a complete graph by LEMON: lemon FILE < nothing; prints seconds and cost.
   FILE: n, then n * n weights, row by row, as 64-bit integers. Only the solution is timed, not the graph. */
#include <lemon/full_graph.h>
#include <lemon/matching.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

int main(int argc, char **argv) {
    std::FILE *file = argc == 2 ? std::fopen(argv[1], "rb") : nullptr;
    std::int64_t n = 0;
    if (file == nullptr || std::fread(&n, sizeof n, 1, file) != 1)
        return 2;
    std::vector<std::int64_t> weights(n * n);
    if (std::fread(weights.data(), sizeof n, n * n, file) != std::size_t(n * n))
        return 2;
    lemon::FullGraph graph(n);
    lemon::FullGraph::EdgeMap<std::int64_t> gains(graph);
    for (lemon::FullGraph::EdgeIt edge(graph); edge != lemon::INVALID; ++edge)
        gains[edge] = -weights[graph.index(graph.u(edge)) * n + graph.index(graph.v(edge))];
    auto start = std::chrono::steady_clock::now();
    lemon::MaxWeightedPerfectMatching<lemon::FullGraph, decltype(gains)> matching(graph, gains);
    bool is_perfect = matching.run();
    std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    std::printf("%.6f %lld\n", taken.count(), -(long long)matching.matchingWeight());
    return is_perfect ? 0 : 1;
}
