"""All messages that users can meet, found in Python by its syntax tree and in C by a pattern."""

import ast
import functools
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

import mpicoloc
from mpicoloc import errors

PACKAGE = Path(mpicoloc.__file__).resolve().parent
CSRC = Path(__file__).resolve().parents[2] / "csrc"
WIDTH_COLUMNS = 110
PRINTERS = {
    "note": "note",
    "append": "note",
    "trouble": "line",
    "detail": "-v",
    "print_to_stderr": "line",
    "warn": "line",
}
"""Functions that print their first argument, or keep it as a note, and how the list marks such a message."""
RAISED = {"ArgumentTypeError": "2", "error": "2", "ValueError": "part", "LookupError": "part"}
"""Errors that come to the reader inside a `MpicolocError`."""
FIELD = r"\{[^{}]*\}"
LITERAL = r'"((?:[^"\\]|\\.)*)"'
C_CALL = re.compile(
    r"(?:\b(?:fprintf|fputs|slurm_error|mc_disable|fail|dprintf)\("
    r'|\bsnprintf\([^;"]*(?:complaint|reason)\b|\breturn (?="[^"]* ))'
    rf'(?:[^;"]|{LITERAL})*;'
)
"""A C statement that prints a message, or keeps one for the profile."""


@dataclass(frozen=True)
class Message:
    """Folder of the package, exit code or sort, and text with its fields as {name}."""

    folder: str
    mark: str
    text: str


@dataclass
class Module:
    """Syntax tree of a module, its functions by name, and its constants that are text."""

    tree: ast.Module
    functions: dict
    constants: dict


def read_module(path):
    """The syntax tree of a file and the names in it that can stand for a message."""
    tree = ast.parse(path.read_text())
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    constants = {node.targets[0].id: node.value for node in assigned if isinstance(node.targets[0], ast.Name)}
    is_text = ast.JoinedStr | ast.Constant | ast.BinOp
    return Module(
        tree, functions, {name: value for name, value in constants.items() if isinstance(value, is_text)}
    )


@functools.cache
def package_modules():
    """All modules of the package by path."""
    return {path: read_module(path) for path in sorted(PACKAGE.rglob("*.py"))}


def exit_codes():
    """Exit code of each exception class of the package's own tree, by name."""
    codes = {name: str(c.exit_code) for name, c in vars(errors).items() if hasattr(c, "exit_code")}
    classes = [
        node
        for m in package_modules().values()
        for node in ast.walk(m.tree)
        if isinstance(node, ast.ClassDef)
    ]
    for node in classes:
        for base in {last_name(base) for base in node.bases} & set(codes):
            codes.setdefault(node.name, codes[base])
    return codes


def last_name(node):
    """The last name of an expression: ``path`` of ``self.files[0].path`` and of ``str(path)``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1:
        return last_name(node.args[0])
    if isinstance(node, ast.Call):
        is_join = isinstance(node.func, ast.Attribute) and node.func.attr == "join" and node.args
        return last_name(node.args[0] if is_join else node.func)
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    parts = map(last_name, ast.iter_child_nodes(node))
    return next((part for part in parts if part != "..."), "...")


def text_of(node, constants):
    """A message as its reader meets it: alternatives as [this|that], every other expression as {name}."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part, constants) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return text_of(node.value, constants)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return text_of(node.left, constants) + text_of(node.right, constants)
    if isinstance(node, ast.IfExp):
        return f"[{text_of(node.body, constants)}|{text_of(node.orelse, constants)}]"
    if isinstance(node, ast.Name) and node.id in constants:
        return text_of(constants[node.id], {})
    return "{" + last_name(node) + "}"


def texts_of(node, function, module):
    """The texts of a message's expression, one step through a variable or a function of the module."""
    if isinstance(node, ast.Name) and function:
        kept = [n for n in ast.walk(function) if isinstance(n, ast.Assign)]
        values = [n.value for n in kept if node.id in [getattr(target, "id", "") for target in n.targets]]
    elif isinstance(node, ast.Call) and last_name(node.func) in module.functions:
        inside = ast.walk(module.functions[last_name(node.func)])
        values = [n.value for n in inside if isinstance(n, ast.Return) and n.value]
    else:
        values = []
    texts = [text_of(value, module.constants) for value in (*values, node)]
    return [text for text in texts if re.search(r"[A-Za-z]{2}", re.sub(FIELD, "", text))]


def calls_of(node, function=None):
    """All calls below a node with the function that each stands in."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call) and child.args:
            yield child, function
        yield from calls_of(child, child if isinstance(child, ast.FunctionDef) else function)


def mark_of(call, codes):
    """The exit code or sort of a call that raises or prints a message; None for other calls."""
    name = last_name(call.func)
    if name == "append" and not ast.unparse(call.func).endswith("notes.append"):
        return None
    return codes.get(name) or RAISED.get(name) or PRINTERS.get(name)


def python_messages():
    """All messages of the package, in the order of the files."""
    codes = exit_codes()
    for path, module in package_modules().items():
        folder = path.relative_to(PACKAGE).parts[0]
        for call, function in calls_of(module.tree):
            if mark := mark_of(call, codes):
                for text in texts_of(call.args[0], function, module):
                    yield Message("mpicoloc" if folder == path.name else folder, mark, text)


def c_messages():
    """All messages of the C core, by folder of ``csrc/``."""
    for path in sorted(CSRC.rglob("*.c")):
        for statement in C_CALL.finditer(path.read_text()):
            # Neighbours are one text, with or without a macro between them; an argument between them is {}.
            text = re.sub(r'"\s*(?:PRI\w+\s*)?"', "", statement.group())
            parts = [part.replace("\\n", "").replace('\\"', '"') for part in re.findall(LITERAL, text)]
            if re.search(r"[a-z]{3}", " ".join(parts)):
                yield Message(f"csrc/{path.relative_to(CSRC).parts[0]}", "C", " | ".join(parts))


def page():
    """The list as a page: one block for each folder."""
    codes = exit_codes()
    classes = {
        code: [f"`{name}`" for name in codes if codes[name] == code] for code in sorted(set(codes.values()))
    }
    marks = [
        f"| {code} | error with this [exit code](cli.md): {', '.join(names)} |"
        for code, names in classes.items()
    ]
    parts = ["# Messages\n", INTRO, "| mark | meaning |\n| --- | --- |", *marks, MARKS]
    by_folder = {}
    for message in dict.fromkeys([*python_messages(), *c_messages()]):
        by_folder.setdefault(message.folder, []).append(message)
    for folder, messages in by_folder.items():
        lines = [wrapped(message) for message in messages]
        parts += [f"## {folder}\n", "```text", *lines, "```\n"]
    return "\n".join(parts)


def wrapped(message):
    """One message with its mark before it."""
    text = " ".join(message.text.split())
    indent = " " * 5
    return textwrap.fill(
        f"{message.mark:<5}{text}", WIDTH_COLUMNS, subsequent_indent=indent, break_on_hyphens=False
    )


INTRO = """\
Every message of mpicoloc, from its source, by folder of `mpicoloc/` and `csrc/`. `{name}` is a value,
`[this|that]` an alternative; in C `%s` is a value, and `|` stands between the parts of a message.
"""

MARKS = """\
| line | printed on standard error, and the work goes on |
| note | the same, but not with `-q`; or a note in a profile |
| -v | printed with `-v` |
| part | stands in another message |
| C | printed by the C core, on standard error or in Slurm's log |
"""
