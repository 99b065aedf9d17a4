"""The table of all options: key, environment variable, flag, type, default, unit, range and help of each.

The C core reads the same options in ``csrc/common/options.c``; the build writes its table, ``options_gen.h``,
from this one (`c_table`). Command-line flags become environment variables of the job (`flags_to_env`), so
that all processes of a job read their options in the same way.
"""

from __future__ import annotations

import math
import os

from mpicoloc.bill import pricings
from mpicoloc.core import counters, number_lists
from mpicoloc.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import NamedTuple
else:
    from mpicoloc.core.record import NamedTuple

Value = float | int | bool | str | None


class Option(NamedTuple):
    """One row of the table (not a dataclass: importing `dataclasses` costs every rank 6 ms).

    `minimum` and `maximum` are inclusive. `choices` are the allowed texts. If the function `accepts` is
    given, it checks the text, and `choices` only describe the allowed texts. `in_c`: the C core also reads
    the option. The word `minus_one_word` stands for -1. `placeholder`, if given, stands for the value in help
    pages.
    """

    key: str
    env: str
    flag: str
    type: type
    default: Value
    unit: str
    help: str
    minimum: float = -math.inf
    maximum: float = math.inf
    choices: tuple[str, ...] = ()
    accepts: Callable[[str], bool] | None = None
    in_c: bool = True
    minus_one_word: str = ""
    placeholder: str = ""

    @property
    def metavar(self) -> str:
        """The value's placeholder in help pages: its unit, its choices or its type."""
        if self.placeholder:
            return self.placeholder
        if self.type is bool:
            return "0|1"
        if self.choices:
            return "|".join(self.choices)
        return {"s": "SECONDS"}.get(self.unit, "N" if self.type in (int, float) else "TEXT")

    @property
    def default_text(self) -> str:
        """The default with its unit; empty if there is none."""
        if self.default is None:
            return ""
        value = int(self.default) if isinstance(self.default, bool) else self.default
        return f"{value}{f' {self.unit}' if self.unit not in ('', '1') else ''}"


OPTIONS: tuple[Option, ...] = (
    Option("shutter.period_s", "MPICOLOC_SHUTTER_PERIOD_S", "--shutter-period-s", float, 0.2, "s",
           "time between two shutters on a node; the meter in use may lengthen it", 0.02, 60.0),
    Option("shutter.duration_s", "MPICOLOC_SHUTTER_DURATION_S", "--shutter-duration-s", float, 0.0032, "s",
           "length of one shutter; the meter in use may lengthen it", 0.0002, 1.0),
    Option("shutter.per_turn", "MPICOLOC_SHUTTER_PER_TURN", "--shutter-per-turn", int, 1, "1",
           "shutters that a job takes before the next job's turn; the largest value on the node counts",
           1, 100),
    Option("shutter.max_s", "MPICOLOC_SHUTTER_MAX_S", "--shutter-max-s", float, 0.1, "s",
           "longest pause of this job, whatever other jobs request", 0.0, 1.0),
    Option("shutter.duty_frac", "MPICOLOC_SHUTTER_DUTY_FRAC", "--shutter-duty-frac", float, 0.02, "1",
           "duty limit: the largest fraction of its time for which this job is paused", 0.0, 0.5,
           placeholder="FRACTION"),
    Option("shutter.adapt", "MPICOLOC_SHUTTER_ADAPT", "--shutter-adapt", bool, True, "",
           "adapt the shutters' period and duration to the meter in use"),
    Option("meter", "MPICOLOC_METER", "--meter", str, "auto", "",
           "measure of progress; ipc: instructions per cycle; burst: times between MPI calls; count: how "
           "often places in the program are executed, found by patching the running code or sampling its "
           "registers; auto: ipc where hardware counters work, else count, or burst if that is much more "
           "certain or there is nothing to count",
           choices=("auto", "ipc", "burst", "count", "none")),
    Option("patching", "MPICOLOC_PATCHING", "--patching", bool, True, "",
           "let the meter count replace instructions of the running program by jumps to counters, for 0.1 s "
           "at each shutter, 0.6 s where jobs take turns; 0 or --no-patching: only sample registers"),
    Option("bubble", "MPICOLOC_BUBBLE", "--bubble", float, 0.0, "",
           "fraction of the shutters in which a bubble or the probe runs beside the job; needs the meter "
           "count, a calibration by `mpicoloc bubble calibrate`, and, if the job is confined to its "
           "processors, a co-runner that was started with --bubble",
           minimum=0.0, maximum=0.9, placeholder="FRACTION"),
    Option("bubble.levels", "MPICOLOC_BUBBLE_LEVELS", "--bubble-levels", str, "2,4,6,8", "",
           "levels of these bubbles; the fewer levels, the sooner each has several shutters",
           choices=("levels above 0 and up to 8, with commas, as 2,4,6,8",),
           accepts=number_lists.is_level_list, placeholder="LIST"),
    Option("bubble.cores", "MPICOLOC_BUBBLE_CORES", "--bubble-cores", str, None, "",
           "processors for these bubbles, as 0-3,8; empty: all that no rank of the job may use",
           choices=("a list of processors, as 0-3,8",), accepts=number_lists.is_cpu_list, placeholder="LIST"),
    Option("bubble.calibration", "MPICOLOC_BUBBLE_CALIBRATION", "--bubble-calibration", str, None, "",
           "calibration of bubbles; empty: the one for this kind of machine in the user's cache",
           placeholder="FILE"),
    Option("counters", "MPICOLOC_COUNTERS", "--counters", str, "on", "",
           "hardware events to count in each rank from MPI_Init to MPI_Finalize, separated by commas; on: "
           "ten common events", choices=counters.CHOICES,
           accepts=counters.is_choice, placeholder="on|off|EVENT,..."),
    Option("out", "MPICOLOC_OUT", "--out", str, None, "",
           "file for the profile; default: mpicoloc-<job id>.h5 in the folder of `mpicoloc run`, else in the "
           "working directory of rank 0", placeholder="FILE"),
    Option("job_id", "MPICOLOC_JOB_ID", "--job-id", str, None, "",
           "the job's name in its profile and for co-runners; default: the batch system's, or a number",
           choices=("a name without /",), accepts=lambda text: "/" not in text, placeholder="NAME"),
    Option("trace", "MPICOLOC_TRACE", "--trace", int, 0, "1",
           "keep the last N MPI calls of each rank as events in the profile; all: write every call to a "
           "folder beside the profile", 0, 1 << 28, minus_one_word="all", placeholder="N|all"),
    Option("trace_ring", "MPICOLOC_TRACE_RING", "--trace-ring", int, 1 << 16, "1",
           "with --trace all: events to buffer in memory for each rank until they are written; further "
           "events are dropped and counted", 64, 1 << 28),
    Option("checkpoint_s", "MPICOLOC_CHECKPOINT_S", "--checkpoint-s", float, 60.0, "s",
           "time between two checkpoints on disk, for `mpicoloc recover` after a node has died; longer if "
           "writing a checkpoint takes more than 1 % of this time; 0: none", 0.0, 1e6),
    Option("shm_dir", "MPICOLOC_SHM_DIR", "--shm-dir", str, "/dev/shm", "",
           "in-memory folder for the job's shared files; must be the same for all jobs of a node",
           placeholder="FOLDER"),
    Option("price.rate_su", "MPICOLOC_RATE_SU", "--rate-su", float, 1.0, "SU per core and hour",
           "price of one core for one hour", 0.0, 1e9, placeholder="SU"),
    Option("price.pricing", "MPICOLOC_PRICING", "--pricing", str, "fair", "",
           "price function: a name, module:function or file.py:function", choices=tuple(pricings.PRICINGS),
           accepts=pricings.is_pricing, placeholder="NAME"),
    Option("sign_key_file", "MPICOLOC_KEY_FILE", "--key-file", str, None, "",
           "sign the profile with the key in this file; only for the site's own programs, as they can read "
           "the key",
           in_c=False, placeholder="KEYFILE"),
    Option("network.topology", "MPICOLOC_TOPOLOGY", "--topology", str, None, "",
           "file with the cluster's topology and its nodes' names (full path); adds the job's network load "
           "to the profile", in_c=False, placeholder="FILE"),
    Option("network.up_links", "MPICOLOC_UP_LINKS", "--up-links", str, None, "",
           "w1 to wh, separated by commas, if the topology's file lacks them", in_c=False,
           placeholder="W1,..."),
    Option("network.link_rate", "MPICOLOC_LINK_RATE", "--link-rate", str, "10Gbit/s", "",
           "rate of links that have none in the topology's file: one for all, or one per level, separated by "
           "commas", in_c=False, placeholder="RATE,..."),
)  # fmt: skip
"""Options of a job."""

SITE_OPTIONS: tuple[Option, ...] = (
    Option("ledger", "MPICOLOC_LEDGER", "--ledger", str, None, "",
           "file or SQLAlchemy URL of the ledger; default: mpicoloc/ledger.sqlite in XDG_DATA_HOME",
           placeholder="FILE|URL"),
)  # fmt: skip
"""Options of verbs that are not options of jobs."""

BY_KEY: dict[str, Option] = {option.key: option for option in OPTIONS + SITE_OPTIONS}
TRACE_EVENTS = 65536
"""Events per rank when ``--trace`` is given without a number."""

KEY_ENV = "MPICOLOC_KEY"
WRAPPED_ENV = "MPICOLOC_WRAPPED"
PID_ENV = "MPICOLOC_PID"
PYTHON_ENV = "MPICOLOC_PYTHON"
COORDINATOR_ENV = "MPICOLOC_COORDINATOR"
SIBLINGS_ENV = "MPICOLOC_COORDINATOR_SIBLINGS"
AFFINITY_ENV = "MPICOLOC_RUN_AFFINITY"
REASON_ENV = "MPICOLOC_REASON_MARK"
"""Path of a file that `mpicoloc run` makes. The process that explains a missing profile removes it
(guest/rank_segment.c)."""
RESTARTED_ENV = "MPICOLOC_RESTARTED"
"""This variable is set in a rank that was restarted because of its MPI library (job/pool.py)."""
SITE_ENVS = frozenset({"MPICOLOC_SITE_OUT", "MPICOLOC_SITE_TRACE", "MPICOLOC_SITE_SHM_DIR"})
"""The Slurm plugin (csrc/spank/environment.c) sets such a variable when it sets the option whose variable
has the same name without SITE."""

_PREFIX = "MPICOLOC_"
_MIN_SIMILARITY = 0.65
"""Least similarity, in [0, 1], at which one name counts as a misspelling of the other."""
_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")


def parse(option: Option, text: str, source: str | None = None) -> Value:
    """Parse the text of an option's value.

    Raises `UsageError` if the text is not of the option's type, or out of range.
    """
    source = source or option.env
    if option.type is bool:
        return _parse_bool(option, text, source)
    if option.type is str:
        return _parse_text(option, text, source)
    if option.minus_one_word and text == option.minus_one_word:
        return -1
    try:
        value = option.type(text)
    except ValueError:
        kind = "a whole number" if option.type is int else "a number"
        kind += f" or {option.minus_one_word}" if option.minus_one_word else ""
        raise UsageError(f"{source} must be {kind}{_unit(option)}, got {text!r}") from None
    if not option.minimum <= value <= option.maximum:
        bounds = f"in [{option.minimum:g}, {option.maximum:g}]"
        raise UsageError(f"{source} must be {bounds}{_unit(option)}, got {text}")
    return value


def _unit(option: Option) -> str:
    return f" ({option.unit})" if option.unit not in ("", "1") else ""


def _parse_bool(option: Option, text: str, source: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in _TRUE + _FALSE:
        raise UsageError(f"{source} must be 0 or 1, got {text!r}")
    return lowered in _TRUE


def _parse_text(option: Option, text: str, source: str) -> str:
    is_right = option.accepts(text) if option.accepts else not option.choices or text in option.choices
    if not is_right:
        words = f"{'one of ' if option.choices[1:] else ''}{', '.join(option.choices)}"
        raise UsageError(f"{source} must be {words}, got {text!r}")
    return text


def get(key: str, env: Mapping[str, str] | None = None) -> Value:
    """Value of the option `key` from its environment variable, or the default if that is empty or not set.

    Raises `UsageError` if the variable's value is invalid, `KeyError` if no row has that key.
    """
    option = BY_KEY[key]
    env = os.environ if env is None else env
    text = env.get(option.env, "")
    return option.default if text == "" else parse(option, text)


def validate(env: Mapping[str, str] | None = None) -> dict[str, Value]:
    """Values of all options by key. Raises `UsageError` at the first invalid value."""
    return {option.key: get(option.key, env) for option in OPTIONS}


def unknown_variables(env: Mapping[str, str] | None = None) -> list[str]:
    """Names of environment variables with our prefix that belong to no option: they are probably misspelt."""
    known = {option.env for option in BY_KEY.values()}
    known |= {KEY_ENV, WRAPPED_ENV, PID_ENV, PYTHON_ENV, COORDINATOR_ENV, SIBLINGS_ENV, AFFINITY_ENV}
    known |= {REASON_ENV, RESTARTED_ENV} | SITE_ENVS
    return sorted(n for n in (env or os.environ) if n.startswith(_PREFIX) and n not in known)


def nearest_variable(name: str) -> str | None:
    """The option's variable that the misspelt `name` probably means; None if no name is similar."""
    # Imported only if a variable is misspelt, because the import would delay every rank.
    import difflib

    ends = [option.env.removeprefix(_PREFIX) for option in BY_KEY.values()]
    close = difflib.get_close_matches(name.removeprefix(_PREFIX), ends, n=1, cutoff=_MIN_SIMILARITY)
    return _PREFIX + close[0] if close else None


def variable_warnings(env: Mapping[str, str] | None = None) -> list[str]:
    """A sentence for each variable that is misspelt.

    Unknown names that resemble no option are ignored, because a site's environment modules set such names,
    for example MPICOLOC_ROOT.
    """
    env = os.environ if env is None else env
    near = ((name, nearest_variable(name)) for name in unknown_variables(env))
    return [f"{name} is not an option and is ignored: did you mean {other}?" for name, other in near if other]


def bad_values() -> list[str]:
    """A sentence for each variable whose value is invalid. It begins with the variable's name."""
    found = []
    for option in OPTIONS:
        try:
            get(option.key)
        except UsageError as error:
            found.append(f"{error}; the default is used")
    return found


def is_trace_value(word: str) -> bool:
    """Whether the word after ``--trace`` is the flag's value, not the program."""
    return word.isdigit() or word == BY_KEY["trace"].minus_one_word


def flags_to_env(values: Mapping[str, str | None]) -> dict[str, str]:
    """Environment variables for the flags in `values`, whose keys are option keys. Every value is checked.

    Relative paths are left for rank 0 to resolve, because its working directory is the job's.
    """
    env: dict[str, str] = {}
    for key, text in values.items():
        if text is None:
            continue
        option = BY_KEY[key]
        value = parse(option, text, option.flag)
        env[option.env] = str(int(value)) if isinstance(value, bool) else text
    return env


def c_table(options: Iterable[Option] = OPTIONS) -> str:
    """Text of ``options_gen.h``: the options' enumeration and rows, words for booleans, and PMU events."""
    rows = [option for option in options if option.in_c]
    lines = ["/* Written from mpicoloc/config.py at build time. Do not edit. */",
             "#ifndef MPICOLOC_OPTIONS_GEN_H", "#define MPICOLOC_OPTIONS_GEN_H", "", "#include <math.h>", "",
             f"#define MC_LONGEST_PERIOD_S {BY_KEY['shutter.period_s'].maximum:g}",
             f"#define MC_MOST_PER_TURN {BY_KEY['shutter.per_turn'].maximum:g}", "", "enum {"]  # fmt: skip
    lines += [f"    MC_OPT_{option.key.upper().replace('.', '_')} = {i}," for i, option in enumerate(rows)]
    lines += [f"    MC_N_OPTIONS = {len(rows)}", "};", "",
              "/* X(environment variable, default as text or NULL, Python's type, lowest, highest) */",
              *_c_macro("MC_OPTION_ROWS", map(_c_row, rows)), "",
              "/* X(word of a bool, its value) */",
              *_c_macro("MC_BOOL_WORDS", (f'X("{word}", {+(word in _TRUE)})' for word in _TRUE + _FALSE)),
              "",
              "/* X(name, type, number, is counted by default) */",
              *_c_macro("MC_PMU_EVENTS", counters.c_rows())]  # fmt: skip
    return "\n".join([*lines, "", "#endif", ""])


def _c_macro(name: str, rows: Iterable[str]) -> list[str]:
    return " \\\n    ".join([f"#define {name}(X)", *rows]).split("\n")


def _c_row(option: Option) -> str:
    default = int(option.default) if isinstance(option.default, bool) else option.default
    text = "NULL" if default is None else f'"{default}"'
    low, high = (f"{bound:.17g}".replace("inf", "INFINITY") for bound in (option.minimum, option.maximum))
    return f'X("{option.env}", {text}, "{option.type.__name__}", {low}, {high})'
