"""Time and memory of characterising 2048 ranks that all send to all, in each setting of a thesis.

  python benchmarks/network.py

Jokanovic 2014, chapter 3: XGFT(3;16,16,8;1,S,S) for S = 1, 2, 4, 8, 16, fragmentations F2, F4, F8, F16, RF.
A job of 2048 ranks has room on F8 with two ranks on a host, on F4 with four and on F2 with eight. For each of
the 25 settings: bytes, bandwidth and utilisation of each level, class, and the loads of all links under
d-mod-k in both directions. The limits are 10 s on one core and 1 GiB.
"""

import resource
import time

import numpy as np

from mpicoloc.core.network import Traffic, parse_xgft, slimmed
from mpicoloc.network import utilisation
from mpicoloc.network.topology import placements

N_RANKS = 2048
TREE = parse_xgft("XGFT(3;16,16,8;1,16,16)", 1.25e9)
SETTINGS = {"F2": 8, "F4": 4, "F8": 2, "F16": 1, "RF": 1}


def all_to_all(n_bytes):
    """The matrix in memory, as a profile's table would give it, not the closed form."""
    ranks = np.arange(N_RANKS)
    return Traffic.of(N_RANKS, np.repeat(ranks, N_RANKS), np.tile(ranks, N_RANKS), n_bytes)


def main():
    started = time.process_time()
    traffic = all_to_all(8192)
    built_s = time.process_time() - started
    print(f"{len(traffic):,} pairs, made in {built_s:.2f} s")
    started = time.process_time()
    for name, ranks_per_host in SETTINGS.items():
        for slimming in (1, 2, 4, 8, 16):
            topology = slimmed(TREE, slimming)
            placement = placements.by_name(name, topology, N_RANKS, np.random.default_rng(0), ranks_per_host)
            levels = utilisation.utilisation(topology, placement, traffic, 1.0)
            loads = utilisation.job_link_loads(topology, placement, traffic)
            used = "  ".join(f"L{row.level} {row.utilisation_frac:6.3f}" for row in levels)
            grade = utilisation.demand_class(levels)
            busiest = max(side.max() for side in loads.up[1:])
            print(f"{name:4} S{slimming:<3} {used}  {grade:9} busiest link {busiest:.3g} B")
    print(f"25 settings in {time.process_time() - started:.2f} s of processor time (limit 10)")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory {peak:.0f} MiB (limit 1024)")


if __name__ == "__main__":
    main()
