"""Tables of `replay_thesis.py`: which simulations they need, and what comes out beside the thesis."""

from itertools import combinations_with_replacement
from statistics import fmean

from replay_thesis import CUT, SCALE, SHORT, Case
from tables import print_table

KIB = 1024
BIG, BIG_W = (16, 16, 8), (16, 8, 4, 2, 1)
PLACEMENTS = ("RF", "F16", "F4")
SHARED_W, N_DRAWS = (8, 4, 2), 1
WORKLOADS = {
    "mix": [name for name in SHORT for _ in range(2)],
    "eight MG": ["MG"] * 8,
    "eight CG": ["CG"] * 8,
}
PAIRS = list(combinations_with_replacement(("FT", "CG", "BT"), 2))
THREE, FOUR = ("FT", "CG", "BT"), ("FT", "CG", "BT", "MG")
RATIOS = ((8, 1), (4, 1), (2, 1), (1, 1), (1, 2), (1, 4), (1, 8))
WEIGHTED_PAIRS = (("FT", "CG"), ("FT", "BT"), ("CG", "BT"))
TRIPLES = ((1, 1, 1), (1, 2, 4), (4, 2, 1), (1, 4, 2), (2, 1, 1))
GROUPS = {"FT, CG+BT": (0, 1, 1), "FT+CG, BT": (0, 0, 1), "FT+BT, CG": (0, 1, 0)}
GROUP_RATIOS = ((4, 1), (2, 1), (1, 1), (1, 2), (1, 4))


def small(names, lanes, n_lanes=1, weights=(), buffer_kib=64):
    """A case of chapter 5: two jobs on 512 hosts with F8, or up to four on 1,024 with F4."""
    is_pair = len(names) == 2
    jobs = tuple((name, CUT[name]) for name in names)
    m, placement = ((16, 16, 2), "F8") if is_pair else ((16, 16, 4), "F4")
    return Case(jobs, m, 4, placement, tuple(lanes), buffer_kib * KIB, n_lanes, tuple(weights))


def small_alone(name, is_pair):
    """T_alone of Table 5.3: one lane with 32 KiB on F8, 16 KiB on F4."""
    m, placement, buffer_kib = ((16, 16, 2), "F8", 32) if is_pair else ((16, 16, 4), "F4", 16)
    return Case(((name, CUT[name]),), m, 4, placement, (0,), buffer_kib * KIB)


def large(names, w, placement, seed=0, is_base=False):
    """A case of chapter 3: one lane, buffers of one packet."""
    jobs = tuple((name, SHORT[name]) for name in names)
    return Case(jobs, BIG, w, placement, (0,) * len(jobs), 4 * KIB, seed=seed, is_base=is_base)


def one_lane(names):
    return small(names, [0] * len(names))


def own_lanes(names, weights=()):
    n = 2 if len(names) == 2 else 4
    weights = tuple(weights) + (1,) * (n - len(weights)) if weights and weights[0] != "high" else weights
    return small(names, range(len(names)), n, weights)


def grouped(lanes, weights=()):
    return small(THREE, lanes, 2, weights)


def weights_of_pair():
    return [("high", 0), *RATIOS, ("high", 1)]


def cases():
    """All, those that the most tables need first."""
    made = [small_alone(name, is_pair) for is_pair in (True, False) for name in FOUR]
    made += [make(names) for names in (*PAIRS, THREE, FOUR) for make in (one_lane, own_lanes)]
    made += [large([name], 16, "RF", is_base=True) for name in SHORT]
    made += [own_lanes(pair, weights) for weights in ((1, 1), (1, 2), (2, 1)) for pair in WEIGHTED_PAIRS]
    made += [own_lanes(THREE, weights) for weights in TRIPLES]
    made += [grouped(lanes) for lanes in GROUPS.values()]
    made += [large([name], w, "RF", seed) for seed in range(N_DRAWS) for name in SHORT for w in SHARED_W]
    made += [large(names, w, "RF", seed) for names in reversed(WORKLOADS.values()) for seed in range(N_DRAWS)
             for w in SHARED_W]  # fmt: skip
    made += [large([name], w, "RF") for w in (1, 16) for name in reversed(SHORT)]
    made += [own_lanes(pair, weights) for pair in WEIGHTED_PAIRS for weights in weights_of_pair()]
    made += [grouped(GROUPS["FT, CG+BT"], weights) for weights in GROUP_RATIOS]
    made += [large([name], w, placement) for placement in PLACEMENTS for name in SHORT for w in BIG_W]
    return list({case.key: case for case in made}.values())


def contention_s(rows, case):
    """Time that the jobs cost each other, summed over the jobs, s (Eq. 5.2)."""
    names = [name for name, _ in case.jobs]
    alone_s = [rows(small_alone(name, len(names) == 2))[0] for name in names]
    return sum(rows(case)) - sum(alone_s)


def change(before, after):
    return f"{100 * (after / before - 1):+.0f} %"


def own_lane_rows(rows):
    """Figures 5.8 to 5.11: contention in one lane and in lanes of their own, and times over T_alone."""
    theirs = {("FT", "FT"): "-7 %", ("FT", "BT"): "-59 %", ("CG", "BT"): "more", THREE: "-22 %",
              FOUR: "-32 %"}  # fmt: skip
    for names in (*PAIRS, THREE, FOUR):
        one, own = one_lane(names), own_lanes(names)
        ms = [1e3 * contention_s(rows, case) for case in (one, own)]
        alone_s = [rows(small_alone(name, len(names) == 2))[0] for name in names]
        times = [", ".join(f"{end_s / alone:.3f}" for end_s, alone in zip(rows(case), alone_s, strict=True))
                 for case in (one, own)]  # fmt: skip
        yield "+".join(names), *(f"{each:.2f}" for each in ms), change(*ms), theirs.get(names, "less"), *times


def shown(weights):
    return f"lane {weights[1]} first" if weights[0] == "high" else " : ".join(map(str, weights))


def weight_rows(rows):
    """Figures 5.12 to 5.17: contention against that with equal weights."""
    sweeps = [(pair, [own_lanes(pair, each) for each in weights_of_pair()], weights_of_pair()) for pair in
              WEIGHTED_PAIRS]  # fmt: skip
    sweeps.append((THREE, [own_lanes(THREE, each) for each in TRIPLES], TRIPLES))
    in_groups = [grouped(GROUPS["FT, CG+BT"], each) for each in GROUP_RATIOS]
    sweeps.append((("FT", "(CG, BT)"), in_groups, GROUP_RATIOS))
    for names, made, weights in sweeps:
        equal = next(i for i, each in enumerate(weights) if set(each) == {1})
        equal_ms = 1e3 * contention_s(rows, made[equal]) if made[equal].key in rows.found else None
        for each, case in zip(weights, made, strict=True):
            if equal_ms is not None and case.key in rows.found:
                one = 1e3 * contention_s(rows, case)
                yield "+".join(names), shown(each), f"{one:.2f}", change(equal_ms, one)


def group_rows(rows):
    """Figure 5.16: which jobs share a lane."""
    ms = {name: 1e3 * contention_s(rows, grouped(lanes)) for name, lanes in GROUPS.items()}
    ms = {"FT, CG, BT": 1e3 * contention_s(rows, own_lanes(THREE)), **ms}
    for name, one in ms.items():
        yield name, f"{one:.2f}", change(ms["FT+CG, BT"], one)


def slimming_rows(rows):
    """Figures 3.8 to 3.14: T_alone over T_base."""
    for name in SHORT:
        base_s = rows(large([name], 16, "RF", is_base=True))[0]
        for placement in PLACEMENTS:
            made = [large([name], w, placement) for w in BIG_W]
            ratios = (f"{rows(case)[0] / base_s:.3f}" if case.key in rows.found else "-" for case in made)
            yield name, placement, *ratios


def workload_rows(rows):
    """Figures 3.15 to 3.17: T_alone and T_sharing over T_base, means of the random placements."""
    for title, names in WORKLOADS.items():
        for name in dict.fromkeys(names):
            base_s = rows(large([name], 16, "RF", is_base=True))[0]
            cells = []
            for w in SHARED_W:
                alone = fmean(rows(large([name], w, "RF", seed))[0] for seed in range(N_DRAWS))
                ends_s = [end_s for seed in range(N_DRAWS)
                          for other, end_s in zip(names, rows(large(names, w, "RF", seed)), strict=True)
                          if other == name]  # fmt: skip
                cells += [f"{alone / base_s:.3f}", f"{fmean(ends_s) / base_s:.3f}"]
            yield title, name, *cells


TABLE_5_3_S = {
    True: {"FT": (9.111861, 5), "CG": (8.191318, 337), "BT": (7.534967, 22), "MG": (None, 36)},
    False: {"FT": (8.192807, 5), "CG": (7.95694, 337), "BT": (7.459007, 22), "MG": (7.304353, 36)},
}


def alone_rows(rows):
    """Table 5.3: time of an iteration alone; ours times SCALE."""
    for is_pair, theirs in TABLE_5_3_S.items():
        for name, (all_s, n) in theirs.items():
            ours_ms = 1e3 * SCALE * rows(small_alone(name, is_pair))[0] / CUT[name]
            their_ms = None if all_s is None else 1e3 * all_s / n
            cells = ("-", "-") if their_ms is None else (f"{their_ms:.1f}", change(their_ms, ours_ms))
            yield name, "F8" if is_pair else "F4", cells[0], f"{ours_ms:.1f}", cells[1]


TABLES = (
    (("program", "placement", "an iteration alone, ms: thesis", "here", "here against there"), alone_rows),
    (
        ("mix", "contention in one lane, ms", "in own lanes, ms", "own against one", "thesis",
         "times over alone, one lane", "own lanes"),
        own_lane_rows,
    ),
    (("mix", "weights", "contention, ms", "against equal weights"), weight_rows),
    (("lanes", "contention, ms", "against FT with CG"), group_rows),
    (("program", "placement", "S16", "S8", "S4", "S2", "S1"), slimming_rows),
    (("workload", "program", "S8 alone", "S8 shared", "S4 alone", "S4 shared", "S2 alone", "S2 shared"),
     workload_rows),
)  # fmt: skip


def show(rows):
    """Print the tables of what there is."""
    for columns, lines in TABLES:
        try:
            print_table(columns, list(lines(rows)))
        except KeyError:
            print(f"Not yet simulated: {lines.__doc__}")
        print()
