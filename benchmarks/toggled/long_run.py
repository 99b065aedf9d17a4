"""What a slowdown gains by time: two programs side by side for long, and what the first minutes alone say.

    python benchmarks/toggled/long_run.py [--pair lmp+gromacs] [--seconds 1200] [--publish]

Both run under mpicoloc with the meter `count`, a rank each on a processor of its own. Afterwards the estimate
is made again from the shutters of the first minutes. ``--publish`` writes results/long-runs.json and the
page.
"""

import argparse
import signal
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import tables
import toggled
import toggled_tables
from toggling import ToggledRun

from mpicoloc.core.estimate import estimate_json
from mpicoloc.measure import count
from mpicoloc.measure.estimate import pass_ns

NAME, COMMAND = "long-runs", "python benchmarks/toggled/long_run.py"
COLUMNS = ["program", "beside", "first minutes", "shutters", "estimate", "half-width", "from the whole run",
           "its slowdown is inside"]  # fmt: skip
FORMATS = [None, None, "{:.0f}", "{}", "{:.3f}", "{:.1f} %", "{:+.1f} %", None]
MINUTES = (1, 2, 5, 10, 20, 60)
TEXT = """\
Two programs, a rank each on a processor of its own, run side by side for {minutes:.0f} minutes under the
meter `count`. *Estimate* is made of the shutters of the first minutes, *from the whole run* is its difference
from that of all shutters. Programs have phases, so a difference is not an error alone. The estimates of one
program share their shutters, so they are not independent; the last one is compared with itself."""


class SideBySide(ToggledRun):
    """Neither of the two is stopped."""

    def toggle(self, seconds, rng):
        """Let both run for so long."""
        begin_s = time.monotonic()
        while time.monotonic() < begin_s + seconds and self.job.poll() is None and self.co_job.poll() is None:
            time.sleep(1.0)
        self.switched.append((begin_s, time.monotonic(), 1.0))


def first_minutes(profile, minutes):
    """What `count` says of the shutters of so many minutes, and how many these are."""
    shutters = profile.tables["shutters"]
    until_ns = shutters["t0_ns"].min() + np.uint64(minutes * 60e9)
    early = shutters[shutters["t0_ns"] < until_ns]
    found = count.slowdown(early, profile.tables["counts"], cost_ns=pass_ns(profile.tables))
    return found, len(early)


def rows_of(name, beside, profile, minutes):
    """A row for each time up to `minutes`."""
    shown = [one for one in MINUTES if one < minutes - 0.5] + [minutes]
    whole = first_minutes(profile, minutes)[0].slowdown
    for one in shown:
        found, n = first_minutes(profile, one)
        value = found.slowdown
        if value is None or whole is None:
            yield [name, beside, one, n, None, None, None, found.reason]
            continue
        off = value.value / whole.value - 1
        half = toggled_tables.half_width(estimate_json(value))
        is_inside = "yes" if value.low <= whole.value <= value.high else "no"
        yield [name, beside, one, n, [value.value, value.low, value.high], half, 100 * off, is_inside]


def measure(args):
    """The table's rows of one run."""
    pairs = toggled.Pairs(args)
    names = args.pair.split("+")
    both = list(zip(map(pairs.prepare, names), pairs.launchers, strict=True))
    run = SideBySide(*both, pairs.work / f"long-{args.pair}", pairs.library, pairs.env, "count")
    run.run(args.seconds, pairs.rng)
    profiles = run.opened("target"), run.opened("co-runner-1")
    return [row for name, beside, profile in zip(names, reversed(names), profiles, strict=True)
            for row in rows_of(name, beside, profile, args.seconds / 60)]  # fmt: skip


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pair", default="lmp+gromacs", help="two programs of toggled.py")
    parser.add_argument("--seconds", type=float, default=1200.0, help="(default 1200)")
    parser.add_argument("--mpirun", default="mpirun.openmpi")
    parser.add_argument("--work", type=Path, default=Path("/tmp/mpicoloc-toggled"), help="inputs and outputs")
    parser.add_argument("--publish", action="store_true", help="write results/long-runs.json")
    args = parser.parse_args(argv)
    args.layout, args.seed = "apart", 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # endless jobs must not stay behind
    table = {
        "caption": "",
        "columns": COLUMNS,
        "formats": FORMATS,
        "rows": toggled_tables.rounded(measure(args)),
    }
    print(tables.markdown(table))
    if args.publish:
        publish(table, args.seconds / 60, toggled.setup_of(args))
    return 0


def publish(table, minutes, setup):
    """Write the result file and the page."""
    text = TEXT.replace("\n", " ").format(minutes=minutes)
    result = {"title": "Long runs", "machine": setup["machine"], "date": setup["date"], "command": COMMAND,
              "text": [text], "tables": [table], "short": []}  # fmt: skip
    tables.write(NAME, result)
    tables.PAGE.write_text(tables.page())


if __name__ == "__main__":
    sys.exit(main())
