"""Whether a run's exit code and output are those of bare runs, apart from what differs among bare runs too.

The rule. A file that is as in a bare run is right; else it is compared line by line. Dates, times of day
and process ids are masked by their form (`UNSTABLE`). Lines are alike if they are equal without their
numbers; the sequence of lines must be that of a bare run. A number is masked if it differs among bare
runs: in lines with words, in all lines of the same words; in lines without, on that line only; and what
`harmless_programs.py` names for a program: times that are rounded so much that bare runs may agree. All
else must be equal to the letter, but for one empty line after another. Of files that are no text: dates as
ctime writes them, times that are named likewise, and the bytes that differ among bare runs, or all if their
length does.
"""

import collections
import re
from dataclasses import dataclass, field

NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eEdD][-+]?\d+)?%?")
_MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_DAY = "(?:mon|tue|wed|thu|fri|sat|sun)(?:day|sday|nesday|rsday|urday)?"
UNSTABLE = (
    (re.compile(rf"(?i)\b(?:{_DAY},? +)?(?:\d+ *)?\b(?:{_MONTHS})[a-z]*\b[ .,]*(?:\d+)?"), "<date>"),
    (re.compile(rf"(?i)\b{_DAY}\b"), "<date>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d\b|\b\d\d/\d\d/\d{4}\b"), "<date>"),
    (re.compile(r"\b\d?\d: ?\d?\d(?:: ?\d?\d(?:\.\d+)?)?\b"), "<time>"),
    (re.compile(r"(?i)\b(?:pid|process id)[ =:]*\d+"), "<pid>"),
)  # fmt: skip
CTIME = re.compile(rb"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}")
TIMES = "<times>"
"""A line with nothing else may be missing."""
N_DIFFERENCES_MAX = 20
"""Lines of a file that are told."""


@dataclass(frozen=True)
class Outcome:
    """Exit code of a run, and the files that it left by name, "stdout" and "stderr" included."""

    code: int
    files: dict[str, bytes]


def text_of(data):
    """The text of a file, or None if it is none."""
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def stable(line, times=""):
    """A line without what has the form of a date, a time of day or a process id, and without `times`."""
    line = re.sub(times, TIMES, line) if times else line
    for pattern, word in UNSTABLE:
        line = pattern.sub(word, line)
    return line


def shape(line):
    """A line without its numbers and the width of its gaps."""
    return " ".join(NUMBER.sub("#", line).split())


@dataclass
class TextMask:
    """Variation of a text file among bare runs: the lines of each run, and which numbers differ."""

    runs: list[list[str]] = field(default_factory=list)
    numbers: dict[object, set[int]] = field(default_factory=lambda: collections.defaultdict(set))

    def learn(self, lines):
        """One more bare run's lines."""
        same = [run for run in self.runs if list(map(shape, run)) == list(map(shape, lines))]
        for i, line in enumerate(lines):
            for other in (run[i] for run in same):
                self.numbers[_key(i, line)] |= _unequal_numbers(line, other)
        self.runs.append(lines)

    def differences(self, lines):
        """Lines that no bare run explains."""
        shapes = list(map(shape, lines))
        run = next((run for run in self.runs if list(map(shape, run)) == shapes), None)
        if run is None:
            return _unlike_lines(self.runs[0], lines)
        return [f"line {i + 1}: {run[i]!r} became {line!r}" for i, line in enumerate(lines)
                if not self._is_explained(i, run[i], line)]  # fmt: skip

    def _is_explained(self, i, bare, line):
        if bare == line:
            return True
        masked = self.numbers.get(_key(i, line), set())
        return bool(masked) and _unequal_numbers(bare, line) <= masked


def _key(i_line, line):
    words = shape(line)
    return words if re.search("[A-Za-z]", words) else (i_line, words)


def _unequal_numbers(line, other):
    pairs = zip(NUMBER.findall(line), NUMBER.findall(other), strict=True)
    return {i for i, (a, b) in enumerate(pairs) if a != b}


def _unlike_lines(bare, lines):
    """The first lines that differ in more than numbers."""
    pairs = enumerate(zip(bare, lines, strict=False))
    i = next((i for i, (a, b) in pairs if shape(a) != shape(b)), min(len(bare), len(lines)))
    n = f"{len(bare)} and {len(lines)} lines in all"
    return [f"line {i + 1}: {bare[i : i + 2]} became {lines[i : i + 2]}, {n}"]


@dataclass
class Reference:
    """Bare runs of a program; `times` matches rounded times in lines, `binary_times` those in other files."""

    times: str = ""
    binary_times: bytes = b""
    outcomes: list[Outcome] = field(default_factory=list)

    def __post_init__(self):
        self._masks = {}

    def learn(self, outcome):
        """One more bare run."""
        self.outcomes.append(outcome)
        self._masks.clear()

    def differences(self, outcome):
        """Sentences: what of this run no bare run explains."""
        found = []
        if outcome.code not in {bare.code for bare in self.outcomes}:
            found.append(f"exit code {self.outcomes[0].code} became {outcome.code}")
        names = set().union(*(bare.files for bare in self.outcomes)) | set(outcome.files)
        for name in sorted(names):
            found += [f"{name}: {what}" for what in self._of_file(name, outcome)[:N_DIFFERENCES_MAX]]
        return found

    def _of_file(self, name, outcome):
        bare = [one for one in self.outcomes if name in one.files]
        if name not in outcome.files:
            return [] if len(bare) < len(self.outcomes) else ["is missing"]
        if not bare:
            return ["is not there in bare runs"]
        data, versions = outcome.files[name], {one.files[name] for one in bare}
        if data in versions:
            return []
        if text_of(data) is None or any(text_of(version) is None for version in versions):
            return _of_bytes(data, sorted(versions), self.binary_times)
        return self._mask(name, bare).differences(self._lines(data))

    def _lines(self, data):
        lines = [stable(line, self.times) for line in text_of(data).splitlines(keepends=True)]
        lines = [line for line in lines if line.strip() != TIMES]
        # Around a line that is missing there may have been two empty ones.
        return [line for i, line in enumerate(lines) if line.strip() or i == 0 or lines[i - 1].strip()]

    def _mask(self, name, bare):
        if name not in self._masks:
            mask = TextMask()
            for one in bare:
                mask.learn(self._lines(one.files[name]))
            self._masks[name] = mask
        return self._masks[name]

    def n_masked(self):
        """Lines of a bare run of which some number differs in another one, and of how many."""
        n_masked = n_all = 0
        for name, data in self.outcomes[0].files.items():
            bare = [one for one in self.outcomes if name in one.files]
            if text_of(data) is None:
                continue
            mask = self._mask(name, bare)
            n_all += len(mask.runs[0])
            n_masked += sum(bool(mask.numbers.get(_key(i, line))) for i, line in enumerate(mask.runs[0]))
        return n_masked, n_all


def _masked(data, patterns):
    for pattern in patterns:
        data = pattern.sub(lambda found: b"?" * len(found[0]), data)
    return data


def _of_bytes(data, versions, times=b""):
    patterns = (CTIME, re.compile(times or b"(?!)", re.DOTALL))
    data, *versions = (_masked(each, patterns) for each in (data, *versions))
    if len({len(version) for version in versions}) > 1:
        return []
    if len(data) != len(versions[0]):
        return [f"{len(versions[0])} bytes became {len(data)}"]
    wrong = [i for i, byte in enumerate(data) if byte not in {version[i] for version in versions}
             and len({version[i] for version in versions}) == 1]  # fmt: skip
    return [f"{len(wrong)} bytes differ, from byte {wrong[0]} on"] if wrong else []
