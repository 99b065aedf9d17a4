"""Bars on a terminal, nothing in a pipe; -q and -v."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import sample
import terminal

from mpicoloc import messages
from mpicoloc.cli import main as cli
from mpicoloc.cli.verbosity import DELAY_S, Watch
from mpicoloc.core import progress
from mpicoloc.errors import EnvironmentFault
from mpicoloc.job import run
from mpicoloc.pmpi import build_shim
from mpicoloc.profile import hdf5

SLOW = """
import sys, time
from mpicoloc.cli import verbosity
from mpicoloc import messages
from mpicoloc.core.progress import count, stage, steps
with verbosity.at(int(sys.argv[1]), "slow"):
    for i in steps(range(20), "reading", unit="profiles"):
        time.sleep(float(sys.argv[2]))
    messages.note("a note\\x1b[31m")
    messages.trouble("a trouble")
print("the result")
"""


@pytest.fixture
def profile(tmp_path):
    hdf5.write(sample.profile(), tmp_path / "p.h5")
    return tmp_path / "p.h5"


class Log(list):
    """A watcher that writes down what it is told."""

    def begin(self, what, total, unit):
        self.append((what, total, unit))
        return len(self)

    def advance(self, part, n):
        self.append((part, n))

    def count(self, unit, n):
        self.append((unit, n))

    def end(self, part):
        self.append(("end", part))


def test_work_tells_whoever_watches():
    log = Log()
    with progress.watched(log):
        assert list(progress.steps("ab", "spelling", unit="letters")) == ["a", "b"]
        with pytest.raises(ValueError), progress.stage("failing") as advance:
            advance(3)
            progress.count("events", 5)
            raise ValueError
    assert log[:4] == [("spelling", 2, "letters"), (1, 1), (1, 1), ("end", 1)]
    assert log[4:] == [("failing", None, ""), (5, 3), ("events", 5), ("end", 5)]
    before = len(log)
    assert list(progress.steps(iter("ab"), "unwatched")) == ["a", "b"] and len(log) == before


def test_units_count_in_the_innermost_part_of_theirs():
    lines, now = [], iter(range(100))
    watch = Watch(has_bars=False, tell=lines.append, clock=lambda: next(now))
    with progress.watched(watch), progress.stage("outer", 10, "events"):
        progress.count("events", 4)
        with progress.stage("inner", 3, "events"), progress.stage("other", None, "files"):
            progress.count("events", 3)
        progress.count("events", 6)
        progress.count("apples", 1)
    assert lines == ["other: 1.00 s", "inner, 3 events: 3.00 s", "outer, 10 events: 5.00 s"]


def slow(level, step_s, **more):
    return terminal.show(sys.executable, "-c", SLOW, str(level), str(step_s), **more)


def test_a_bar_for_what_lasts_and_nothing_of_it_at_the_end():
    shown = slow(messages.NORMAL, DELAY_S / 8)
    assert shown.ever("of 20 profiles")
    assert shown.screen == ["mpicoloc: a note?[31m", "mpicoloc: a trouble", "the result"]


@pytest.mark.parametrize(
    ("level", "step_s", "env"),
    [
        (messages.NORMAL, 0.0, {}),
        (messages.QUIET, DELAY_S / 8, {}),
        (messages.NORMAL, DELAY_S / 8, {"TERM": "dumb"}),
    ],
    ids=["quick", "quiet", "dumb"],
)
def test_no_bar(level, step_s, env):
    shown = slow(level, step_s, env=env)
    assert "of 20" not in shown.output and "\x1b" not in shown.output
    assert ("a note" in shown.output) == (level == messages.NORMAL)
    assert "a trouble" in shown.output and "the result" in shown.output


def test_no_bar_in_a_pipe_whatever_colours_are_forced():
    command = [sys.executable, "-c", SLOW, "0", str(DELAY_S / 8)]
    env = {"FORCE_COLOR": "1", "PATH": "/bin"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)
    assert done.stderr == "mpicoloc: a note?[31m\nmpicoloc: a trouble\n" and done.stdout == "the result\n"


def test_the_bar_has_no_colour_if_none_is_wanted_and_fits():
    shown = slow(messages.NORMAL, DELAY_S / 8, env={"NO_COLOR": "1"}, columns=40)
    assert shown.ever("of 20 profiles") and "\x1b[3" not in shown.output
    assert all(len(screen) == 1 for screen in shown.seen if "of 20" in "".join(screen))


def test_results_of_a_pipe_have_nothing_of_the_bar(tmp_path):
    shown = slow(messages.NORMAL, DELAY_S / 8, stdout=tmp_path / "out")
    assert shown.ever("of 20 profiles") and (tmp_path / "out").read_text() == "the result\n"


def test_ctrl_c_leaves_the_terminal_as_it_was():
    shown = slow(messages.NORMAL, 1.0, stop_s=6.0)
    assert shown.code != 0 and shown.ever("of 20 profiles")
    assert shown.output.count("\x1b[?25l") == shown.output.count("\x1b[?25h")


@pytest.mark.parametrize("where", ["before", "after"])
def test_verbose_tells_what_took_how_long(profile, where, capsys):
    words = ["show", str(profile)]
    assert cli.main(["-v", *words] if where == "before" else [*words, "--verbose"]) == 0
    said = capsys.readouterr()
    assert re.search(rf"mpicoloc: reading {re.escape(str(profile))}: \d+\.\d\d s", said.err)
    assert "s in all" in said.err
    assert cli.main(words) == 0
    assert capsys.readouterr() == (said.out, "")


@pytest.mark.parametrize("words", [["-q", "report"], ["report", "--quiet"]])
def test_quiet_keeps_notes_to_itself_but_no_errors(profile, words, capsys, tmp_path):
    more = [str(profile), "--figures", str(tmp_path / "f"), "--format", "csv"]
    assert cli.main(["report", *more]) == 0 and "figures" in capsys.readouterr().err
    assert cli.main([*words, *more]) == 0 and capsys.readouterr().err == ""
    assert cli.main([*words, "/no/such.h5"]) == 3 and capsys.readouterr().err.startswith("mpicoloc: no such")


@pytest.mark.parametrize("verb", list(cli.VERBS))
def test_every_verb_takes_both(verb):
    for parser in all_parsers(cli.build_parser(verb)[1]):
        flags = parser._option_string_actions
        assert flags["-q"].const == messages.QUIET and flags["--verbose"].const == messages.VERBOSE


def all_parsers(parser):
    yield parser
    for action in parser._actions:
        if isinstance(action.choices, dict):
            for child in action.choices.values():
                yield from all_parsers(child)


def test_the_applications_own_flags_stay_its_own():
    parser = cli.build_parser("run")[0]
    args = parser.parse_args(["run", *run.prepare_argv(["-q", "-n", "2", "lmp", "-v", "-q"])])
    assert args.level == messages.QUIET and args.app == ["lmp", "-v", "-q"]
    args = cli.build_parser("lab")[0].parse_args(["lab", "exec", "-v", "h0", "ls", "-q"])
    assert args.level == messages.VERBOSE and args.app == ["ls", "-q"]
    assert cli.build_parser("ledger")[0].parse_args(["ledger", "-q", "list"]).level == messages.QUIET


def test_both_are_none():
    assert cli.main(["show", "-q", "-v", "x"]) == 2


def test_a_child_that_was_forked_does_not_wait_for_the_bars(profile):
    """Reading takes place in children, which get a copy of the bars with whatever lock was held."""
    import os

    watch = Watch(has_bars=True)
    number = watch.begin("reading", 2, "files")
    watch._lock.acquire()
    child = os.fork()
    if child == 0:
        import threading

        done = threading.Thread(target=lambda: (watch.advance(number, 1), watch.end(watch.begin("x", 1, ""))))
        done.start()
        done.join(10)
        os._exit(done.is_alive())
    watch._lock.release()
    assert os.waitpid(child, 0)[1] == 0
    watch.end(number)


def test_history_shows_how_many_are_read(tmp_path, profile):
    """The real thing, with bars that do not wait for work to last."""
    (tmp_path / "many").mkdir()
    content = profile.read_bytes()
    for i in range(400):
        Path(tmp_path / "many" / f"{i}.h5").write_bytes(content)
    words = ["history", str(tmp_path / "many"), "--last", "1"]
    at_once = (
        "from mpicoloc.cli import verbosity; verbosity.DELAY_S = 0.0; from mpicoloc.cli.main import main"
    )
    shown = terminal.show(
        *(sys.executable, "-c", f"{at_once}; raise SystemExit(main({words}))"),
        env={"XDG_CACHE_HOME": str(tmp_path)},
    )
    assert shown.ever("of 400 profiles")
    assert "1 job" in shown.screen[0] and shown.code == 0


def test_a_name_with_a_newline_makes_no_line_of_its_own(tmp_path, capsys):
    assert cli.main(["show", str(tmp_path / "a\nmpicoloc: forged.h5")]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert "a?mpicoloc: forged.h5" in line


def test_an_answer_of_the_compiler_keeps_its_lines(tmp_path):
    compiler = tmp_path / "cc"
    compiler.write_text('#!/bin/sh\nprintf "x.c:1: bad\\n  here\\n" >&2\nexit 1\n')
    compiler.chmod(0o755)
    (tmp_path / "x.c").write_text("int x;\n")
    with pytest.raises(EnvironmentFault, match=r"the C compiler failed on x\.so:") as fault:
        build_shim.compile_and_link([str(compiler)], [], [tmp_path / "x.c"], tmp_path / "x.so", [])
    assert fault.value.__notes__ == ["x.c:1: bad", "  here"]
