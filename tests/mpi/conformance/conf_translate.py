"""A small subset of C, in which the cases are written, as C, as Fortran and as Python.

One statement a line: calls of MPI, assignments, `if`, `for (i = a; i < b; i++)`, `while`, with braces. The
variables are those of `conf_programs`. As Python, a body says how often a rank calls each function.
"""

import re
from collections import Counter

FORTRAN_TYPES = {
    "MPI_INT": "MPI_INTEGER",
    "MPI_DOUBLE": "MPI_DOUBLE_PRECISION",
    "MPI_2INT": "MPI_2INTEGER",
    "MPI_AINT": "MPI_AINT",
}
KINDS = {"MPI_Aint": "MPI_ADDRESS_KIND", "MPI_Offset": "MPI_OFFSET_KIND", "MPI_Count": "MPI_COUNT_KIND"}
ARRAYS = ("counts", "displs", "counts2", "displs2", "dtypes", "dtypes2", "indices", "requests", "periods")
ARRAYS += ("dims", "remain", "coords", "sbuf", "rbuf")
CALL = re.compile(r"^MPI_(\w+)\((.*)\);$")
FOR = re.compile(r"^for \((\w+) = (.+?); \1 < (.+?); \1\+\+\) \{$")
BLOCK = re.compile(r"^(if|while) \((.*)\) \{$")


def split_arguments(text):
    """Arguments of a call: `text` cut at the commas that no bracket encloses."""
    parts, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    rest = text[start:].strip()
    return [*parts, rest] if rest else parts


def statements(body):
    """Lines of a body without comments, those with a one-line `if` spread over three."""
    for line in body.splitlines():
        line = re.sub(r"\s*/\*.*\*/", "", line).strip()
        short = re.match(r"^if \((.*?)\) (MPI_.*|\w+ = .*);$", line)
        if short:
            yield from (f"if ({short.group(1)}) {{", f"{short.group(2)};", "}")
        elif line:
            yield line


def called(body):
    """Names of the functions that a body may call, without `MPI_`."""
    found = (CALL.match(line) for line in statements(body))
    return {match.group(1) for match in found if match}


def _arguments(match, prototypes):
    """Arguments of a call with the types of their parameters; arrays of the width that the function takes."""
    params = prototypes[match.group(1)].params
    arguments = split_arguments(match.group(2))
    assert len(arguments) == len(params), f"{match.group(0)} wants {len(params)} arguments"
    wide = re.compile(r"(const )?MPI_(Count|Aint) ?(\*|\[\])$")
    result = []
    for argument, param in zip(arguments, params, strict=True):
        if wide.match(param.type) and re.match(r"^(counts|displs)\d?$", argument):
            is_count = "MPI_Count" in param.type
            argument = ("big_" if is_count else "far_") + argument
        result.append((argument, param.type.replace("const", "").strip()))
    return result


def to_c(body, prototypes):
    """The body as C."""
    lines = []
    for line in statements(body):
        match = CALL.match(line)
        if match:
            arguments = ", ".join(argument for argument, _ in _arguments(match, prototypes))
            line = f"MPI_{match.group(1)}({arguments});"
        elif set_array(line):
            line = " ".join([line, *set_array(line)])
        lines.append(f"    {line}")
    return "\n".join(lines)


def set_array(line):
    """The same assignment to the wider arrays, so that every width holds the same numbers."""
    match = re.match(r"^((?:counts|displs)\d?)(\[.*?\] = .*;)$", line)
    prefixes = ("big_", "far_")
    return [f"{prefix}{match.group(1)}{match.group(2)}" for prefix in prefixes] if match else []


def fortran_expression(text):
    """An expression: indices from 1, Fortran's operators and type names."""
    text = re.sub(r"\b(\w+)\[([^\[\]]*)\]", r"\1(1 + (\2))", text)
    text = text.replace("&&", ".and.").replace("||", ".or.").replace("!=", "/=").replace("&", "")
    text = re.sub(r"!\s*(?!=)", ".not. ", text)
    text = re.sub(r"\bMPI_\w+", lambda m: FORTRAN_TYPES.get(m.group(0), m.group(0)), text)
    return text.replace('""', "' '").replace('"', "'")


def _fortran_argument(argument, c_type):
    text = fortran_expression(argument)
    kind = KINDS.get(c_type)
    if text == "path":
        return "trim(path)"
    return f"int({text}, {kind})" if kind else text


def _fortran_call(match, prototypes):
    name = match.group(1)
    arguments = [_fortran_argument(*pair) for pair in _arguments(match, prototypes)]
    if name == "Init" or name == "Init_thread":
        arguments = arguments[2:]
    # mpi_f08 has one name for both widths
    name = name.removesuffix("_c")
    return f"call MPI_{name}({', '.join([*arguments, 'ierr'])})"


def to_fortran(body, prototypes):
    """The body as Fortran."""
    lines, open_blocks = [], []
    for line in statements(body):
        match = CALL.match(line)
        if match:
            lines.append(_fortran_call(match, prototypes))
        elif line in ("}", "} else {"):
            lines.append("else" if line != "}" else f"end {open_blocks.pop()}")
        elif found := FOR.match(line):
            name, first, end = found.groups()
            lines.append(f"do {name} = {fortran_expression(first)}, {fortran_expression(end)} - 1")
            open_blocks.append("do")
        elif found := BLOCK.match(line):
            condition = fortran_expression(found.group(2))
            lines.append(f"if ({condition}) then" if found.group(1) == "if" else f"do while ({condition})")
            open_blocks.append("if" if found.group(1) == "if" else "do")
        else:
            lines += [fortran_expression(each.rstrip(";")) for each in (line, *set_array(line))]
    return "\n".join(f"    {line}" for line in lines)


def _python_expression(text):
    text = text.replace("&&", " and ").replace("||", " or ").replace("/", "//")
    return re.sub(r"!\s*(?!=)", " not ", text)


def to_python(body):
    """The body as Python that calls `_call` with the name of each function."""
    lines, depth = [], 0
    for line in statements(body):
        if line.startswith("}"):
            depth -= 1
        if line == "}":
            continue
        if match := CALL.match(line):
            text = f"_call({match.group(1)!r})"
        elif line == "} else {":
            text = "else:"
        elif match := FOR.match(line):
            text = f"for {match.group(1)} in range({match.group(2)}, {match.group(3)}):"
        elif match := BLOCK.match(line):
            is_if = match.group(1) == "if"
            # a loop that waits for something turns as often as the program says
            text = f"if {_python_expression(match.group(2))}:" if is_if else "for _ in range(_tries):"
        else:
            text = _python_expression(line.rstrip(";"))
        lines.append("    " * depth + text)
        depth += line.endswith("{")
    return "\n".join(lines)


class _Names(dict):
    """Variables of a case; what MPI would set is None."""

    def __missing__(self, name):
        return None


def count_calls(body, names, tries):
    """Calls of each function by a rank: `names` says which, `tries` how often its waiting loop turned."""
    calls = Counter()
    space = _Names({name: [0] * 64 for name in ARRAYS})
    space.update(names, tries=0, _tries=tries, range=range, _call=lambda name: calls.update([name]))
    exec(to_python(body), {"__builtins__": {}}, space)
    return calls
