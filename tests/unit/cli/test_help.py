"""Help of every command: one shape, in 80 columns, with examples that its own parser takes."""

import re
import shlex

import pytest

from mpicoloc.cli import arguments, main as cli


def commands():
    """Each verb and each word that may follow it, with its parser."""
    for verb in cli.VERBS:
        parser = cli.build_parser(verb)[1]
        yield (verb,), parser
        yield from (((verb, word), child) for word, child in arguments.actions_of(parser).items())


COMMANDS = [pytest.param(words, parser, id=" ".join(words)) for words, parser in commands()]


def examples_of(parser):
    """The examples of a parser, each a line of shell."""
    found = (parser.epilog or "").removeprefix(f"{arguments.EXAMPLES}\n").replace("\\\n", "")
    return [" ".join(line.split()) for line in found.splitlines() if line.strip()]


def own_words(example):
    """Arguments that an example passes to mpicoloc, without the shell's pipes and redirections."""
    inner = re.search(r"\$\((mpicoloc [^)]*)\)", example)
    words = shlex.split(inner[1] if inner else example, comments=True)
    words = words[words.index("mpicoloc") + 1 :]
    return words[: next((i for i, word in enumerate(words) if word in (">", "|", "<")), len(words))]


@pytest.mark.parametrize(("words", "parser"), COMMANDS)
def test_examples_are_taken_by_their_own_parser(words, parser):
    examples = [line for line in examples_of(parser) if re.search(r"(^|[ (])mpicoloc ", line)]
    assert examples, "its docstring needs a paragraph of commands, indented by two spaces"
    for example in examples:
        verb, *rest = own_words(example)
        assert (verb, *rest)[: len(words)] == words
        prepare = getattr(cli.load_verb(verb), "prepare_argv", list)
        args, unknown = cli.build_parser(verb)[0].parse_known_args([verb, *prepare(rest)])
        assert not unknown and args.run == cli.load_verb(verb).run


def test_a_wrong_example_would_be_found():
    parser = cli.build_parser("show")[1]
    arguments.describe(parser, "Show.\n\n  mpicoloc show --jsn a.h5")
    verb, *rest = own_words(examples_of(parser)[0])
    assert cli.build_parser("show")[0].parse_known_args([verb, *rest])[1] == ["--jsn"]


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize(("words", "parser"), COMMANDS)
def test_help_has_one_shape_and_fits(words, parser, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    text = parser.format_help()
    assert text.startswith(f"usage: mpicoloc {' '.join(words)}"[: columns - 2])
    order = [text.index(part) for part in ("usage:", parser.description[:20], "--help", "\nexamples:\n")]
    assert order == sorted(order)
    if columns == 80:
        assert max(map(len, text.splitlines())) <= columns
    first = parser.description.split("\n\n")[0]
    assert first[0].isupper() and first.rstrip().endswith((".", ":"))
    for action in parser._actions:
        assert action.help, f"{words}: {action.dest} has no help"


def test_prose_is_wrapped_and_what_is_indented_stays(monkeypatch):
    parser = cli.Parser(prog="x")
    arguments.describe(parser, "One two\nthree.\n\n  a = 1   # stays\n\n  sudo mpicoloc lab down\n\nThe end.")
    monkeypatch.setenv("COLUMNS", "40")
    text = parser.format_help()
    assert "One two three.\n\n  a = 1   # stays\n\nThe end.\n" in text
    assert text.endswith("examples:\n  sudo mpicoloc lab down\n")


def test_the_commands_own_help():
    parser = cli.build_parser(None)[0]
    assert [own_words(example)[0] for example in examples_of(parser)] == ["run", "show", "show"]
    text = parser.format_help()
    order = [text.index(f"\n    {verb} ") for verb in cli.VERBS]
    titles = [text.index(f"\n  {group}:\n    {next(iter(verbs))} ") for group, verbs in cli.GROUPS.items()]
    assert order == sorted(order) and titles == sorted(titles)
