// The traffic of `replay.py` in ns-3: point-to-point devices with drop-tail queues that never fill, and switches that
// forward in the devices' receive callback. No IP, no TCP, no ARP: nothing that ns-3 could do without. It has no credits,
// no lanes and no cut-through, so queues grow instead of holding back their senders.
//
// Usage: replay_ns3 SCHEDULER < TRAFFIC. Words of the traffic: the levels of the XGFT, its m and w; bytes/s; the number
// of jobs; for each job its ranks, its phases (bytes, turns, step), and the host of each rank. Prints the simulated and
// the elapsed seconds, the packet-hops, and the memory in KiB.
#include <chrono>
#include <cstdio>
#include <iostream>
#include <random>
#include <sys/resource.h>
#include <unordered_map>
#include <vector>

#include "ns3/core-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-net-device.h"
#include "ns3/point-to-point-channel.h"

using namespace ns3;

static const uint32_t mtu_bytes = 2048, control_bytes = 64, eager_bytes = 16384;
static const Time mpi_latency = MicroSeconds(1), hop_latency = NanoSeconds(125);
static const uint16_t any_protocol = 0x0800; // the device knows two, and looks no further

enum Kind : uint8_t { DATA, REQUEST, CLEARANCE };

// What a packet carries: where to, from which rank to which, what, and the size of its message.
class Route : public Header
{
  public:
    uint32_t dst_host = 0, from = 0, to = 0;
    uint32_t n_bytes = 0;
    uint8_t kind = DATA;

    static TypeId GetTypeId()
    {
        static TypeId id = TypeId("Route").SetParent<Header>().AddConstructor<Route>();
        return id;
    }
    TypeId GetInstanceTypeId() const override { return GetTypeId(); }
    uint32_t GetSerializedSize() const override { return 17; }
    void Serialize(Buffer::Iterator at) const override
    {
        at.WriteU32(dst_host);
        at.WriteU32(from);
        at.WriteU32(to);
        at.WriteU32(n_bytes);
        at.WriteU8(kind);
    }
    uint32_t Deserialize(Buffer::Iterator at) override
    {
        dst_host = at.ReadU32();
        from = at.ReadU32();
        to = at.ReadU32();
        n_bytes = at.ReadU32();
        kind = at.ReadU8();
        return 17;
    }
    void Print(std::ostream &) const override {}
};

static uint64_t n_hops;
static double bps;
static std::mt19937_64 rng(0);

// A host or switch: switch `copy` of subtree `tree` on a level of the XGFT; hosts are level 0.
struct Place {
    uint32_t level = 0, tree = 0, copy = 0;
    std::vector<Ptr<PointToPointNetDevice>> down, up;
    Ptr<Node> node = CreateObject<Node>();

    bool receive(Ptr<NetDevice>, Ptr<const Packet> packet, uint16_t, const Address &);
    void send(const Ptr<Packet> &packet, uint32_t dst_host);
};

static std::vector<uint32_t> m, w, n_below, n_roots; // n_below[l]: hosts below a switch of level l; n_roots: its copies
static std::vector<std::vector<Place>> levels;

// Down where the destination is below, else up by any link.
void Place::send(const Ptr<Packet> &packet, uint32_t dst_host)
{
    bool is_below = level > 0 && dst_host / n_below[level] == tree;
    Ptr<PointToPointNetDevice> &device = is_below ? down[dst_host / n_below[level - 1] % m[level - 1]]
                                       : up.size() == 1 ? up[0] : up[rng() % up.size()];
    device->Send(packet, Address(), any_protocol);
}

static std::vector<uint32_t> host_of_rank;

// A rank: in each turn of a phase it sends one message and receives one.
struct Rank {
    struct Phase {
        uint32_t n_bytes, n_turns;
        int32_t step;
    };
    struct Come {
        uint32_t n_requests = 0, n_messages = 0, n_bytes = 0; // not yet matched; of messages that are not complete
    };
    uint32_t first = 0, number = 0, n_ranks = 0; // of the job: its first rank's number, its size
    const std::vector<Phase> *phases = nullptr;
    std::size_t i_phase = 0;
    uint32_t i_turn = 0, from = 0, to = 0;
    bool is_sent = false, is_received = true, is_cleared = false;
    std::unordered_map<uint32_t, Come> come;
    Time link_free;

    void turn();
    void inject(uint32_t peer, uint32_t n_bytes, Kind kind);
    void on_sent();
    void on_packet(const Route &route, uint32_t n_bytes);
    void match();
    void next_if_done();
};

static std::vector<Rank> ranks;

void Rank::turn()
{
    if (i_phase == phases->size())
        return;
    const Phase &phase = (*phases)[i_phase];
    int64_t n = n_ranks, shift = (1 + int64_t(phase.step) * i_turn) % n;
    to = first + uint32_t((number + shift) % n);
    from = first + uint32_t((number + n - shift) % n);
    is_received = is_cleared = false;
    bool is_eager = phase.n_bytes <= eager_bytes;
    is_sent = is_eager;
    Simulator::Schedule(mpi_latency, &Rank::inject, this, to, is_eager ? phase.n_bytes : control_bytes,
                        is_eager ? DATA : REQUEST);
    match();
}

void Rank::inject(uint32_t peer, uint32_t n_bytes, Kind kind)
{
    Route route;
    route.dst_host = host_of_rank[peer];
    route.from = first + number;
    route.to = peer;
    route.kind = kind;
    route.n_bytes = n_bytes;
    for (uint32_t left = n_bytes; left > 0;) {
        uint32_t size = left < mtu_bytes ? left : mtu_bytes;
        left -= size;
        Ptr<Packet> packet = Create<Packet>(size - route.GetSerializedSize());
        packet->AddHeader(route);
        levels[0][host_of_rank[route.from]].send(packet, route.dst_host);
    }
    Time now = Simulator::Now();
    link_free = (link_free > now ? link_free : now) + Seconds(n_bytes / bps);
    if (kind == DATA && n_bytes > eager_bytes)
        Simulator::Schedule(link_free - now, &Rank::on_sent, this);
}

void Rank::on_sent()
{
    is_sent = true;
    next_if_done();
}

// Packets of a message take different ways, so it is complete when all of its bytes are there.
void Rank::on_packet(const Route &route, uint32_t n_bytes)
{
    if (route.kind == CLEARANCE) {
        inject(route.from, (*phases)[i_phase].n_bytes, DATA);
        return;
    }
    Come &c = come[route.from];
    if (route.kind == REQUEST)
        c.n_requests++;
    else if ((c.n_bytes += n_bytes) >= route.n_bytes) {
        c.n_bytes -= route.n_bytes;
        c.n_messages++;
    }
    if (!is_received && route.from == from)
        match();
}

// One receive is posted in a turn.
void Rank::match()
{
    Come &c = come[from];
    if (c.n_messages > 0) {
        c.n_messages--;
        is_received = true;
        next_if_done();
    } else if (!is_cleared && c.n_requests > 0) {
        c.n_requests--;
        is_cleared = true;
        inject(from, control_bytes, CLEARANCE);
    }
}

void Rank::next_if_done()
{
    if (!is_sent || !is_received)
        return;
    if (++i_turn == (*phases)[i_phase].n_turns) {
        i_turn = 0;
        i_phase++;
    }
    turn();
}

bool Place::receive(Ptr<NetDevice>, Ptr<const Packet> packet, uint16_t, const Address &)
{
    n_hops++;
    Route route;
    packet->PeekHeader(route);
    if (level == 0)
        ranks[route.to].on_packet(route, packet->GetSize());
    else
        send(ConstCast<Packet>(packet), route.dst_host);
    return true;
}

static Ptr<PointToPointNetDevice> device_of(Place &place, const Ptr<PointToPointChannel> &channel)
{
    auto device = CreateObject<PointToPointNetDevice>();
    auto queue = CreateObject<DropTailQueue<Packet>>();
    queue->SetMaxSize(QueueSize(QueueSizeUnit::PACKETS, 1u << 30));
    device->SetQueue(queue);
    device->SetDataRate(DataRate(uint64_t(bps * 8)));
    device->SetAddress(Mac48Address::Allocate());
    place.node->AddDevice(device);
    device->SetReceiveCallback(MakeCallback(&Place::receive, &place));
    device->Attach(channel);
    return device;
}

static void connect(Place &below, Place &above)
{
    auto channel = CreateObject<PointToPointChannel>();
    channel->SetAttribute("Delay", TimeValue(hop_latency));
    below.up.push_back(device_of(below, channel));
    above.down.push_back(device_of(above, channel));
}

// Switches of a level, and their links down: child d of a subtree is subtree m d of the level below.
static void build_tree()
{
    n_below = {1};
    n_roots = {1};
    uint32_t n_hosts = 1;
    for (std::size_t l = 0; l < m.size(); l++) {
        n_hosts *= m[l];
        n_below.push_back(n_hosts);
        n_roots.push_back(n_roots[l] * w[l]);
    }
    levels.resize(m.size() + 1);
    for (uint32_t l = 0; l <= m.size(); l++) {
        levels[l] = std::vector<Place>(n_hosts / n_below[l] * n_roots[l]);
        for (uint32_t i = 0; i < levels[l].size(); i++) {
            levels[l][i].level = l;
            levels[l][i].tree = i / n_roots[l];
            levels[l][i].copy = i % n_roots[l];
        }
    }
    for (uint32_t l = 1; l <= m.size(); l++)
        for (Place &above : levels[l])
            for (uint32_t d = 0; d < m[l - 1]; d++) {
                uint32_t tree = above.tree * m[l - 1] + d;
                connect(levels[l - 1][tree * n_roots[l - 1] + above.copy % n_roots[l - 1]], above);
            }
}

static std::vector<std::vector<Rank::Phase>> phases;

static void read_job(std::size_t i_job)
{
    uint32_t n_ranks, n_phases;
    std::cin >> n_ranks >> n_phases;
    phases[i_job].resize(n_phases);
    for (Rank::Phase &phase : phases[i_job])
        std::cin >> phase.n_bytes >> phase.n_turns >> phase.step;
    uint32_t first = uint32_t(ranks.size());
    for (uint32_t i = 0; i < n_ranks; i++) {
        uint32_t host;
        std::cin >> host;
        host_of_rank.push_back(host);
        Rank rank;
        rank.first = first;
        rank.number = i;
        rank.n_ranks = n_ranks;
        rank.phases = &phases[i_job];
        ranks.push_back(rank);
    }
}

static bool read_traffic()
{
    std::size_t n_levels, n_jobs;
    std::cin >> n_levels;
    m.resize(n_levels);
    w.resize(n_levels);
    for (uint32_t &number : m)
        std::cin >> number;
    for (uint32_t &number : w)
        std::cin >> number;
    std::cin >> bps >> n_jobs;
    phases.resize(n_jobs);
    for (std::size_t i = 0; i < n_jobs; i++)
        read_job(i);
    return bool(std::cin);
}

int main(int argc, char **argv)
{
    if (argc != 2 || !read_traffic()) {
        std::fprintf(stderr, "usage: replay_ns3 SCHEDULER < TRAFFIC\n");
        return 2;
    }
    Simulator::SetScheduler(ObjectFactory(argv[1]));
    build_tree();
    for (Rank &rank : ranks)
        Simulator::ScheduleNow(&Rank::turn, &rank);
    auto start = std::chrono::steady_clock::now();
    Simulator::Run();
    std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    for (const Rank &rank : ranks)
        if (rank.i_phase < rank.phases->size()) {
            std::fprintf(stderr, "replay_ns3: a rank did not end\n");
            return 1;
        }
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    std::printf("%.9f %.6f %lu %ld\n", Simulator::Now().GetSeconds(), elapsed.count(), (unsigned long)n_hops,
                usage.ru_maxrss);
    return 0;
}
