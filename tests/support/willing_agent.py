"""A node agent for tests of what coordinators agree on."""

from mpicoloc.pmpi import contract, node_agent

MS = 1_000_000
VALID = contract.MC_VERDICT_VALID


class Agent:
    """A node agent as its coordinator sees it: answers at its second look, with what the test says."""

    def __init__(self, is_free=True, verdict=VALID, n_jobs=2, drawn=0, can_bubble=True):
        self.is_free, self.verdict, self.n_jobs = is_free, verdict, n_jobs
        self.drawn, self.can_bubble = drawn, can_bubble
        self.asked = self.answered = self.judged = 0
        self.confirmed, self.begins, self.wanted, self.had = [], [], [], []

    @property
    def common(self):
        answered, self.answered = self.answered, self.asked
        return node_agent.Common(
            answered, self.is_free, self.judged, self.verdict, self.n_jobs, 40 * MS, 30 * MS,
            self.can_bubble, self.drawn, True,
        )  # fmt: skip

    def agree(self, is_on):
        self.agreed = is_on

    def share(self, is_shared):
        self.shared = is_shared

    def set_clock(self, offset_ns, bound_ns):
        self.bound_ns = bound_ns

    def ask(self, i, t0_ns, t1_ns, bubble):
        self.asked, self.t0_ns = i, t0_ns
        self.wanted.append(bubble)

    def decide(self, i, is_firm, has_bubble):
        if is_firm:
            self.begins.append(self.t0_ns)
            self.had.append(self.wanted[-1] * has_bubble)
            self.judged = i

    def confirm(self, i, verdict):
        self.confirmed.append((i, verdict))
