"""EASY as AccaSim 1.1.3 has it, for mpicoloc's engine; each of its rules can be left out."""

import numpy as np

from mpicoloc.batch.engine import Simulation

RULES = ("waits", "fills", "keeps")
"""Rules by which AccaSim's EASY differs from Mu'alem and Feitelson 2001:

waits: the first job that found no nodes is tried again only at events from its reserved time on, even if
    nodes are free earlier
fills: other jobs begin whenever they find nodes, even if they run past the reserved time: the scheduler tells
    its allocator of no reserved node
keeps: a reservation is made once, and not brought forward when jobs end early
"""


class Easy:
    """An order with some of the rules.

    Parameters
    ----------
    rules : collection of str
        Of `RULES`; with none of them it is EASY.
    """

    def __init__(self, rules=RULES):
        self.rules = frozenset(rules)
        self.reserved = None
        """Of the first job, if it is blocked: its number, the reserved time, s, and nodes spare then."""
        self._now_s = -np.inf
        self._is_due = False

    def __call__(self, view):
        """Place in the queue of the next job, or None."""
        if view.now_s != self._now_s:
            self._now_s = view.now_s
            self._is_due = self.reserved is None or self.reserved[1] <= view.now_s
        is_tried = self._is_due or self.reserved is None or "waits" not in self.rules
        if is_tried and view.can_start(0):
            self.reserved = None
            return 0
        is_blocked = view.queue["n_nodes"][0] > view.n_free
        if self.reserved is None or ("keeps" not in self.rules and is_blocked):
            found = view.reservation(0)
            self.reserved = int(view.queue["job"][0]), found.start_s, found.n_spare
        return self._filled(view)

    def _filled(self, view):
        n_nodes = view.queue["n_nodes"]
        fits = n_nodes <= view.n_free
        fits[0] = False
        if "fills" not in self.rules:
            _, reserved_s, n_spare = self.reserved
            is_short = view.now_s + view.queue["estimate_s"] <= reserved_s
            fits &= is_short | (n_nodes <= n_spare)
        place = int(fits.argmax())
        if not fits[place]:
            return None
        if "fills" not in self.rules and not is_short[place]:
            job, reserved_s, n_spare = self.reserved
            self.reserved = job, reserved_s, n_spare - int(n_nodes[place])
        return place


class LateSimulation(Simulation):
    """A simulation for orders that keep a reservation.

    It asks them while no node is free, too, since AccaSim makes reservations then as well, and goes on at the
    reserved time when nothing else happens any more.
    """

    def _begin_jobs(self):
        super()._begin_jobs()
        if not self.view.n_free and len(self.waiting):
            place = self._order(self.view)
            assert place is None, "no node is free"

    def _next_s(self):
        next_s = super()._next_s()
        reserved = getattr(self._order, "reserved", None)
        if next_s == np.inf and len(self.waiting) and reserved is not None:
            return max(reserved[1], self.now_s)
        return next_s
