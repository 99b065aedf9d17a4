/* Exceptions from deep inside hot loops, through frames with destructors, also between threads. */
#include "hot.h"

#include <cstdio>
#include <exception>
#include <mpi.h>
#include <stdexcept>
#include <thread>

namespace
{

struct Guard {
    uint64_t &sum;
    uint64_t x;
    ~Guard()
    {
        sum = sum * 0x5851f42du + scramble(x ^ 0x14057b7eu, 8);
    }
};

struct Odd : std::runtime_error {
    uint64_t value;
    explicit Odd(uint64_t v) : std::runtime_error("odd"), value(v)
    {
    }
};

__attribute__((noinline)) uint64_t deep(uint64_t x, int depth, uint64_t &sum)
{
    Guard guard{sum, x};
    x = (x ^ 0x2545f491u) * 0x41c64e6du + 12345678u;
    for (int i = 0; i < 30; i++) {
        x = scramble(x, 4) ^ 0x1b873593u;
        if (depth == 0 && (x & 0x1fu) == 7u)
            throw Odd(x);
    }
    return depth ? deep(x + 0x12345678u, depth - 1, sum) + 0x01010101u : x;
}

void work(uint64_t seed, int n, uint64_t *result)
{
    uint64_t sum = seed, n_caught = 0;
    for (int i = 0; i < n; i++) {
        try {
            try {
                sum += deep(sum + static_cast<uint64_t>(i) * 0x9e3779b9u, i % 6, sum);
            } catch (const std::logic_error &) {
                sum = 0;
            }
        } catch (const Odd &odd) {
            sum ^= odd.value + 0x7f4a7c15u;
            n_caught += 0x00010001u;
        }
    }
    *result = sum + n_caught;
}

} // namespace

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    uint64_t mine = 0, other = 0;
    std::exception_ptr carried;
    std::thread thread([&] {
        work(3, 400000, &other);
        try {
            throw Odd(other);
        } catch (...) {
            carried = std::current_exception();
        }
    });
    work(1, 400000, &mine);
    thread.join();
    try {
        std::rethrow_exception(carried);
    } catch (const Odd &odd) {
        mine ^= odd.value;
    }
    std::printf("sums %llu %llu\n", static_cast<unsigned long long>(mine), static_cast<unsigned long long>(other));
    MPI_Finalize();
    return 5;
}
