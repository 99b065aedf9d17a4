"""Runs rank programs without a network: every send waits for its receive, so what ends here ends anywhere."""

from collections import defaultdict, deque

from mpicoloc.replay.native import ABSOLUTE, ANY, SHIFT, XOR, Operation


class Deadlock(Exception):
    """Ranks wait for each other."""


class Rank:
    """One rank: where it stands in its program, and its requests."""

    def __init__(self, rank, program, n_ranks):
        self.rank, self.n_ranks = rank, n_ranks
        self.ops = program.tolist()
        self.at, self.loops, self.requests = 0, [], {}
        self.compute_ns = 0
        self.marks = []

    def peer(self, op):
        _, mode, _, peer, _, _, _, n, _ = op
        i = self.loops[-1][1] if self.loops else 0
        if mode == ABSOLUTE:
            return peer
        if mode == SHIFT:
            return (self.rank + peer + n * i) % self.n_ranks
        return self.rank ^ (peer << i) if mode == XOR else self.rank ^ (peer + n * i)


class Runner:
    """Runs the ranks of a job in turn until nobody can go on."""

    def __init__(self, job):
        programs = [job.programs[i] for i in job.program_of_rank]
        self.ranks = [Rank(i, program, len(programs)) for i, program in enumerate(programs)]
        self.sends, self.receives = defaultdict(deque), defaultdict(deque)
        self.messages = []
        self.compute_ns = [0] * len(programs)

    def run(self):
        """All messages as (source, destination, bytes), sorted."""
        todo = True
        while todo:
            todo = False
            for rank in self.ranks:
                while self.step(rank):
                    todo = True
        stuck = [(rank.rank, rank.at) for rank in self.ranks if rank.at < len(rank.ops)]
        if stuck:
            raise Deadlock(f"rank and operation: {stuck[:5]}")
        left = [where for queue in (self.sends, self.receives) for where, posts in queue.items() if posts]
        assert not left, f"unmatched: {left[:5]}"
        self.compute_ns = [rank.compute_ns for rank in self.ranks]
        return sorted(self.messages)

    def step(self, rank):
        """One operation; whether it could be done."""
        if rank.at >= len(rank.ops):
            return False
        op = rank.ops[rank.at]
        kind, *_, request, n, value = op
        if kind in (Operation.SEND, Operation.RECV):
            request = -1 - rank.at
            if request not in rank.requests:
                self.post(rank, op, request)
            if not rank.requests[request]:
                return False
            del rank.requests[request]
        elif kind in (Operation.ISEND, Operation.IRECV):
            assert request not in rank.requests, f"request {request} of rank {rank.rank} is in use"
            self.post(rank, op, request)
        elif kind in (Operation.WAIT, Operation.WAITALL):
            slots = range(request, request + (n if kind == Operation.WAITALL else 1))
            if not all(rank.requests.get(slot, True) for slot in slots):
                return False
            for slot in slots:
                rank.requests.pop(slot, None)
        elif kind == Operation.LOOP:
            assert n > 0
            rank.loops.append([rank.at, 0, n])
        elif kind == Operation.END:
            loop = rank.loops[-1]
            loop[1] += 1
            if loop[1] < loop[2]:
                rank.at = loop[0]
            else:
                rank.loops.pop()
        elif kind == Operation.COMPUTE:
            rank.compute_ns += value
        elif kind == Operation.MARK:
            rank.marks.append(value)
        rank.at += 1
        return True

    def post(self, rank, op, request):
        kind, _, _, _, tag, comm, _, _, value = op
        peer = rank.peer(op)
        rank.requests[request] = False
        if kind in (Operation.SEND, Operation.ISEND):
            assert 0 <= peer < len(self.ranks), f"rank {rank.rank} sends to {peer}"
            self.sends[peer].append((rank, peer, tag, comm, request, value))
            self.match(peer)
        else:
            self.receives[rank.rank].append((rank, peer, tag, comm, request, value))
            self.match(rank.rank)

    def match(self, where):
        """Pair what can be, in MPI's order."""
        for receive in list(self.receives[where]):
            taker, source, tag, comm, slot, _ = receive
            for send in list(self.sends[where]):
                giver, _, sent_tag, sent_comm, sent_slot, n_bytes = send
                if source not in (ANY, giver.rank) or tag not in (ANY, sent_tag) or comm != sent_comm:
                    continue
                self.sends[where].remove(send)
                self.receives[where].remove(receive)
                giver.requests[sent_slot] = taker.requests[slot] = True
                self.messages.append((giver.rank, where, n_bytes))
                break


def run(job):
    """Messages of a job, sorted; see `Runner.run`."""
    return Runner(job).run()
