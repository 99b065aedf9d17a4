"""Check the prose of pages and docstrings. Usage: .ci/prose.py [FILE...]; without files: the whole tree."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

from proselint.checks import __register__
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("docs/*.md", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "packaging/README.md")
RULES = (  # path, pattern, complaint; more of them: "Sentences that are read once" of the conventions
    (r"\.md$", r"^#+ (What|Who|How)\b.*(?<!\?)$", "a heading names its subject; a question ends with ?"),
    (r"^(?!.*/howto/).*\.md$", r"^#+ (What|Who|How)\b.*\?$", "only headings in docs/howto ask questions"),
    (r"\.py$", r"\A(What|Who|How)\b", "a docstring says what the thing is or does"),
    (r"\.md$", r"(?i)\b(told|asked for|stands still|in turns|presses|luck)\b", "use the field's term"),
    (r"", r"(?i)\b(neighbor|behavior|color)(s|ed|ing)?\b|\butiliz\w+", "British spelling"),
    (r"", r"(?i)\b(a|an|and|for|in|is|of|the|to|with)\s\1\b(?!\.\w)", "a word stands twice"),
)
OFF = {  # proselint's checks that fire on words of this field, and why
    "archaism": "'for ever' is British",
    "dates_times.dates.dash_and_from": "'from 1/32 to' is no date",
    "lexical_illusions": "tables, headings and numpydoc's types repeat words; RULES has those that matter",
    "misc.illogic": "'more than 9 %, or all' is a set of events",
    "misc.preferred_forms": "'all of the time' is a quantity",
    "typography.symbols": "straight quotes, ... and (c) are what terminals and code have",
    "uncomparables": "'least possible' is a term of optimisation",
}
CODE = re.compile(
    r"^(?P<fence> *(?:```+|~~~+|:::+)).*?^(?P=fence)|(?P<ticks>`+).+?(?P=ticks)|<!--.*?-->|\]\([^)]*\)"
    r"|https?://\S+",
    re.MULTILINE | re.DOTALL,
)


def passages(path):
    """Line number and text, without code and addresses, of each passage of prose in a file."""
    text = path.read_text()
    if path.suffix == ".py":
        values = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr)]
        texts = [value for value in values if isinstance(getattr(value, "value", None), str)]
        found = [(value.lineno, inspect.cleandoc(value.value)) for value in texts]
    elif path.name == "CHANGELOG.md":  # its newest section
        found = [(1, "\n## ".join(text.split("\n## ")[:2]))]
    else:
        found = [(1, text)]
    return [
        (line, CODE.sub(lambda code: "()" + "\n" * code.group().count("\n"), text)) for line, text in found
    ]


def findings(path):
    """Everything that is found in a file, as lines of text."""
    for first, text in passages(path):
        found = []
        for where, pattern, complaint in RULES if text.strip() else ():
            matches = re.finditer(pattern, text if re.search(where, str(path)) else "", re.MULTILINE)
            found += [(match.start(), f"{match.group()!r}: {complaint}") for match in matches]
        for one in (one.check_result for one in LintFile("", text or " ").lint()):
            if not one.check_path.startswith(tuple(OFF)):
                # Its text begins with a line of its own.
                found.append((one.span[0] - 1, f"{one.check_path}: {one.message}"))
        for at, complaint in found:
            yield f"{path}:{first + text.count(chr(10), 0, at)}: {complaint}"


if __name__ == "__main__":
    CheckRegistry().register_many(__register__)
    listing = ["git", "-C", str(ROOT), "ls-files", *PAGES, "mpicoloc/*.py"]
    listed = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.splitlines()
    lines = [line for name in sys.argv[1:] or listed for line in findings(ROOT / name)]
    print("\n".join(lines))
    sys.exit(bool(lines))
