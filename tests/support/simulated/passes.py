"""A simulated job passes a place: its shutters as csrc/agent/ records them, with known slowdown."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpicoloc.core.tables import table

APART_S = 0.0015
N_INSTANTS = 4000
PATTERNS = {"alternating": [0.4, 1.6], "in bursts": [0.2] * 8 + [2.4]}


@dataclass(frozen=True)
class Job:
    """`gap_s`: mean time between passes in co-run. `kind`: spread of a lognormal, "two sizes", or a pattern.

    slice_s: the co-runner takes the processor by turns instead of slowing evenly. cold: part of the gain in
    speed that is missing until sampling begins; just after the pause it is slower still. rate_cv: of speed.
    """

    slowdown: float
    gap_s: float = 1.6e-3
    kind: float | str = 0.0
    duration_s: float = 0.005
    around_s: float = 0.025
    n_threads: int = 1
    slice_s: float = 0.0
    cold: float = 0.0
    rate_cv: float = 0.02

    @property
    def begin_s(self):
        return self.duration_s / 4


def shutters(rng, job, n):
    """Table "shutters" with `n` rows; time 0 is the begin of the pause."""
    rows = [_shutter(rng, job) for _ in range(n)]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return table("shutters", {"verdict": np.ones(n), "entry": np.full(n, 0x1440), **columns})


def _shutter(rng, job):
    times, work = _clock(rng, job)
    threads = [np.interp(_passes(rng, job, work[-1]), work, times) for _ in range(job.n_threads)]
    return {**record(threads, job), "busy_frac": (1 / job.slowdown if job.slice_s else 1.0) - 1e-3}


def record(threads, job):
    """One shutter's columns from the instants of the passes of each thread."""
    edges = {"begin": (0.0, job.begin_s), "end": (job.duration_s, job.duration_s + APART_S)}
    spans = {"before": before(job), "during": (job.begin_s, job.duration_s), "after": after(job), **edges}
    row = {f"{name}_window_ns": round((end - begin) * 1e9) for name, (begin, end) in spans.items()}
    for hits in threads:
        n = {name: len(_within(hits, *span)) for name, span in spans.items()}
        rate = (n["before"] + n["after"]) / (2 * job.around_s)
        for name in spans:
            row[f"{name}_hits"] = row.get(f"{name}_hits", 0) + n[name]
        _add_edge(row, "begin", hits, rate, edges["begin"], before(job))
        reverse = [tuple(-t for t in span[::-1]) for span in (edges["end"], after(job))]
        _add_edge(row, "end", -hits[::-1], rate, *reverse)
    return row


def _add_edge(row, name, hits, rate, edge, window):
    """Time runs towards the shutter."""
    far, near = edge
    most = (window[1] - window[0]) / 2
    last_far = max(hits[hits < far], default=-np.inf)
    last = max(hits[hits < near], default=-np.inf)
    inside = near - last if last >= far else near - far if far - last < most else 0.0
    distances = {
        "far": min(far - last_far, most),
        "mean": mean_age(_within(hits, *window), *window, most),
        "inside": inside,
        "outside": 0.0 if last >= far else min(far - last, most),
    }
    for what, distance in distances.items():
        row[f"{name}_{what}"] = row.get(f"{name}_{what}", 0.0) + rate * distance


def mean_age(hits, begin, end, most):
    """Mean time since the last hit, at most `most`, over the instants from begin + most on."""
    t = begin + most + (np.arange(N_INSTANTS) + 0.5) / N_INSTANTS * (end - begin - most)
    last = np.concatenate([[-np.inf], hits])[np.searchsorted(hits, t, side="right")]
    return np.minimum(t - last, most).mean()


def _within(hits, begin, end):
    return hits[(hits >= begin) & (hits < end)]


def before(job):
    return -APART_S - job.around_s, -APART_S


def after(job):
    return job.duration_s + APART_S, job.duration_s + APART_S + job.around_s


def _clock(rng, job):
    """Instants, and the work (s alone) done by then; the speed is even between."""
    first, last = before(job)[0] - 1e-3, after(job)[1] + 1e-3
    pace = job.slowdown * np.exp(rng.normal(0, job.rate_cv))
    if job.slice_s:
        return _sliced(rng, job, pace, first, last)
    corun, warming = 1 / pace, 1 - job.cold * (1 - 1 / pace)
    times = np.array([first, 0.0, job.begin_s, job.duration_s, job.duration_s + APART_S, last])
    speed = np.array([corun, warming, 1.0, corun * (1 - job.cold / 4), corun])
    return times, np.concatenate(
        [[0.0], np.cumsum(np.diff(times) * speed * np.exp(rng.normal(0, job.rate_cv)))]
    )


def _sliced(rng, job, pace, first, last):
    """Turns until the pause; after it the others have theirs first."""
    other = (pace - 1) * job.slice_s
    period = other + job.slice_s
    turns = np.arange(np.floor(first / period) - 1, np.ceil(last / period) + 1) * period
    before = turns[turns < period] + rng.uniform(0, period) - period
    after = job.duration_s + other + turns[turns >= 0]
    own = [(t, min(t + job.slice_s, 0.0)) for t in before if t < 0] + [(0.0, job.duration_s)]
    own += [(t, t + job.slice_s) for t in after]
    times, work = [min(first, own[0][0]) - 1e-3], [0.0]
    for begin, end in own:
        times += [begin, end]
        work += [work[-1], work[-1] + end - begin]
    slope = np.arange(len(work)) * 1e-12
    return np.array(times), np.array(work) + slope


def _passes(rng, job, work_s):
    """Passes in a program that runs since long: each after so much work."""
    mean = job.gap_s / job.slowdown
    n = int(3 * work_s / mean) + 150
    if job.kind in PATTERNS:
        gaps = np.resize(np.roll(PATTERNS[job.kind], rng.integers(9)), n)
    elif job.kind == "two sizes":
        gaps = np.where(rng.random(n) < 0.8, 0.5, 3.0)
    else:
        spread = np.sqrt(np.log(1 + job.kind**2))
        gaps = rng.lognormal(-(spread**2) / 2, spread, n)
    passes = np.cumsum(gaps) * mean - rng.uniform(50, 60) * mean
    return passes[(passes > 0) & (passes < work_s)]
