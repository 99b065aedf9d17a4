"""Price functions of a centre: F(rate_su, t_solo_s, t_corun_s) in SU per core-hour.

This is F of Breslow et al. 2013, Eq. 2; the price is F x cores x t_solo_s. Use one with
--pricing examples/site_prices.py:at_least_half, or install it in a package with an entry point in the group
mpicoloc.pricings.
"""


def at_least_half(rate_su, t_solo_s, t_corun_s):
    """The fair price, but at least half of that by run time: bounds what a false slowdown gains."""
    fair = rate_su * t_solo_s / t_corun_s
    half_by_run_time = 0.5 * rate_su * t_corun_s / t_solo_s
    return max(fair, half_by_run_time)


def as_alone(rate_su, t_solo_s, t_corun_s):
    """What the run would have cost alone: no user pays for co-runners, none is paid for having them."""
    return rate_su
