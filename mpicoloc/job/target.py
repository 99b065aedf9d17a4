"""The file of an application, its MPI library, and the library to preload for it.

`wrap`, `run` and `preload` use this module, so that the three ways of starting a job agree.
"""

from __future__ import annotations

import itertools
import os

from mpicoloc.errors import EnvironmentFault, UsageError, remedy
from mpicoloc.job.processes import LAUNCHERS
from mpicoloc.pmpi import elf, paths as pmpi_paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import NamedTuple
else:
    from mpicoloc.core.record import NamedTuple

_PYTHONS = ("python", "pypy", "ipython")
SHELLS = ("bash", "sh", "dash", "zsh", "ksh", "csh", "tcsh")
_INTERPRETERS = (
    *SHELLS,
    "perl",
    "ruby",
    "julia",
    "R",
    "Rscript",
    "java",
    "octave",
    "lua",
    "tclsh",
    "node",
)
_FLAGS_WITH_FILE = ("--rcfile", "--init-file")
"""Flags of shells that take the next word as value."""
_PREFIXES = (
    "env",
    "numactl",
    "taskset",
    "time",
    "nice",
    "ionice",
    "stdbuf",
    "setarch",
    "chrt",
    "timeout",
    "strace",
    "ltrace",
    "gdb",
    "valgrind",
    "perf",
    "likwid-pin",
    "nsys",
    "rocprof",
    "hwloc-bind",
    "setsid",
    "nohup",
)
_LIBRARIES = {
    "mpich": ("libmpi.so.12", "libmpich.so.12"),
    "openmpi": ("libmpi.so.40",),
    "abi": ("libmpi_abi.so.1", "libmpi_abi.so.0", "libmpi_abi.so"),
}
_SCRIPT_BYTES = 1 << 16
_BEFORE_COMMANDS = ("exec", "if", "then", "elif", "else", "while", "until", "do", "!", "{", "command", "eval")
_RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD", "SLURM_PROCID", "MPI_LOCALRANKID")
_SEPARATORS = dict.fromkeys(map(ord, ";|&()<>`'\""), " ")
NAMES = {"mpich": "MPICH", "openmpi": "Open MPI", "abi": "the MPI standard's ABI"}


class Target(NamedTuple):
    """An application: its file, the family and file of its MPI library, and the library to preload.

    `first` are the sanitizers that it links, which must come before any preloaded library. `unshared` says
    why the application's world must not contain a coordinator, and is empty if it may.
    """

    file: str
    abi: str
    libmpi: str | None
    shim: str
    first: tuple[str, ...] = ()
    unshared: str = ""


def find(app: Sequence[str], env: Mapping[str, str], family: str | None = None) -> Target:
    """Find the file, MPI library and preloaded library of the application `app`.

    Raises `UsageError` if the program does not exist, does not use MPI, or needs another launcher. Raises
    `EnvironmentFault` if no preloaded library fits its MPI.
    """
    file = elf.resolve_application(app[0], env.get("PATH"))
    program = script_interpreter(file) or file
    library_path = env.get("LD_LIBRARY_PATH", "")
    linked = elf.linked_mpi(program, library_path)
    if linked is None and base_name(program) in _PREFIXES:
        linked = _linked_by_words(app[1:], env) or _linked_by_texts(app[1:], env, family)
    if linked is None and base_name(program) in SHELLS:
        linked = _linked_by_texts([file, *app[1:]], env, family)
    if linked is None and base_name(program) not in _PYTHONS + _INTERPRETERS + _PREFIXES:
        _refuse(file, program)
    if linked is None:
        linked = _of_interpreter(program, env, family)
    _check_launcher(file, linked, family)
    shim = pmpi_paths.listed(shim_for(file, linked))
    first = elf.linked_files(program, _is_sanitizer)
    return Target(file, linked.abi, linked.path, shim, first, _unshared(linked, library_path))


_UNSHARED = {
    "partitioned communication": (b"mpi_psend_init", b"mpi_precv_init"),
    "sessions": (b"mpi_session_init",),
}
"""Features for which Open MPI 5 and 6 use a copy of the real world, with the functions that start each.
Names are in lower case, so that they also match Fortran's."""


def _unshared(linked: elf.Linked, library_path: str) -> str:
    """Why a program's world must not contain a coordinator; empty if it may."""
    library = elf.names(linked.path) if linked.path else b""
    if b"ompi_mpi_comm_world" not in library:
        return ""
    own = (linked.user, *elf.linked_files(linked.user, _is_of_program, library_path)) if linked.user else ()
    names = b"".join(map(elf.names, own)).lower()
    for what, functions in _UNSHARED.items():
        if any(function in names for function in functions):
            return f"uses {what}, for which Open MPI waits for all ranks, a coordinator too"
    return ""


def _is_of_program(soname: str) -> bool:
    """Whether a library is the program's own, not the system's or MPI's, and so may call MPI."""
    return not (elf.is_system(soname) or soname.startswith(("libmpi", "libopen-", "liboshmem")))


def _is_sanitizer(soname: str) -> bool:
    """Whether a library ends the program if another library is loaded before it."""
    return soname.startswith(("libasan.so", "libhwasan.so", "libclang_rt.asan", "libclang_rt.hwasan"))


def base_name(path: str) -> str:
    """Name of a program without its version: python3.11 -> python."""
    return os.path.basename(path).rstrip("0123456789.-") or os.path.basename(path)


def script_interpreter(file: str) -> str | None:
    """The interpreter that a script's first line names; None if the file is a program.

    Raises `UsageError` if that interpreter does not exist, or the file is neither program nor script.
    """
    try:
        with elf.open_regular(file) as opened:
            head = opened.read(256)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    if head[:4] == b"\x7fELF":
        return None
    if head[:2] != b"#!":
        raise UsageError(
            f"{file} is neither a program nor a script with a #! line: name its interpreter before it"
        )
    words = head[2:].split(b"\n", 1)[0].decode(errors="replace").split()
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    if not words:
        raise UsageError(f"{file} has an empty #! line: name its interpreter")
    return elf.resolve_application(words[0])


def _linked_by_words(words: Sequence[str], env: Mapping[str, str]) -> elf.Linked | None:
    """The MPI of the first of these words that names an MPI program."""
    for _, path in _programs(words, env):
        linked = elf.linked_mpi(path, env.get("LD_LIBRARY_PATH", ""))
        if linked is not None:
            return linked
    return None


def _programs(words: Sequence[str], env: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """Position and file of each word that names a program."""
    for i, word in enumerate(words):
        path = word if "/" in word else elf.which(word, env.get("PATH"))
        if path and os.path.isfile(path) and os.access(path, os.X_OK):
            yield i, path


def _linked_by_texts(words: Sequence[str], env: Mapping[str, str], family: str | None) -> elf.Linked | None:
    """The MPI of the first MPI program in the script that these words run, or in ``sh -c "..."`` among them.

    This is a guess, because the script is not run; so an MPI of another family than the launcher's is
    ignored.
    """
    for text in (script_text(words, env), *words):
        linked = _linked_by_words(_words_of_text(text), env)
        if linked is not None and family in (None, linked.abi):
            return linked
    return None


def _words_of_text(text: str) -> list[str]:
    """The distinct words of a shell's text, without comments and quotes, with variables expanded.

    Relative paths are also resolved from each folder to which the script changes (`cd`).
    """
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    words = os.path.expandvars("\n".join(lines)).translate(_SEPARATORS).split()
    folders = [folder for before, folder in itertools.pairwise(words) if before == "cd"]
    paths = [word for word in words if word.startswith(("./", "../"))]
    return list(dict.fromkeys(words + [os.path.join(folder, path) for folder in folders for path in paths]))


def script_text(words: Sequence[str], env: Mapping[str, str]) -> str:
    """The beginning of a script: the first program among these words, or the script that this program runs.

    Empty if there is no script. No other file is opened, because another file may be a pipe, or input that
    the application will read.
    """
    for i, path in _programs(words, env):
        if base_name(path) in SHELLS:
            return _text_of(_script_of_shell(words[i + 1 :]))
        if text := _text_of(path):
            return text
    return ""


def _script_of_shell(words: Sequence[str]) -> str:
    """The script that a shell with these arguments runs; empty if its commands are not in a file (-c, -s)."""
    rest = iter(words)
    for word in rest:
        if not word.startswith(("-", "+")):
            return word
        if not word.startswith("--") and ("c" in word or "s" in word):
            return ""
        if word in _FLAGS_WITH_FILE or (not word.startswith("--") and word.endswith(("o", "O"))):
            next(rest, "")
    return ""


def refuse_launcher(file: str, app: Sequence[str], env: Mapping[str, str]) -> None:
    """Refuse a script that starts its ranks itself: under a launcher each rank would start a job.

    `file` is the file of `app`. A script that reads a launcher's rank variable is trusted. Raises
    `UsageError` if it refuses.
    """
    texts = [app[0], script_text([file, *app[1:]], env)]
    if base_name(app[0]) in SHELLS:
        flags = [word.startswith("-") and not word.startswith("--") and "c" in word for word in app[:-1]]
        texts += [app[i + 1] for i, is_command in enumerate(flags) if is_command]
    for text in texts:
        if (name := _launcher_of(text)) and not any(variable in text for variable in _RANK_VARIABLES):
            import shlex

            command = shlex.join(app)
            raise UsageError(
                f"{command} starts {name} itself, so each rank would start a job of its own: write "
                f"LD_PRELOAD=$(mpicoloc preload APP) {command}, APP being its MPI program"
            )


def _launcher_of(text: str) -> str | None:
    """The launcher that a shell's text starts; None if it starts none or cannot be parsed."""
    if not any(name in text for name in LAUNCHERS):
        return None
    import shlex

    words = shlex.shlex(";".join(_lines(text)), posix=True, punctuation_chars=True)
    words.whitespace_split = True
    words.commenters = ""
    command: list[str] = []
    try:
        for word in itertools.chain(words, ";"):
            if not set(word) <= set("();|&"):
                command.append(word)
            elif name := _started_by(command):
                return name
            else:
                command = []
    except ValueError:
        pass  # an unterminated quotation
    return None


def _lines(text: str) -> Iterator[str]:
    """Lines of a shell's text without comments and here-documents."""
    end = None
    for line in text.replace("\\\n", " ").replace("`", ";").splitlines():
        if end is not None:
            end = None if line.strip() == end else end
            continue
        for i, letter in enumerate(line):
            is_begin = letter == "#" and (i == 0 or line[i - 1] in " \t;")
            if is_begin and line.count("'", 0, i) % 2 == line.count('"', 0, i) % 2 == 0:
                line = line[:i]
                break
        _, operator, rest = line.partition("<<")
        if operator and rest.strip("-").strip() and not rest.startswith("<"):
            end = rest.strip("-").split()[0].strip("'\"")
        yield line


def _started_by(command: Sequence[str]) -> str | None:
    """The launcher that a command starts, even behind variables, redirections and programs like `timeout`."""
    is_value = is_prefixed = False
    for word in command:
        name = os.path.basename(word).split(".")[0]
        if name in LAUNCHERS:
            return word
        is_skipped = is_value or "=" in word or word[0].isdigit() or word in _BEFORE_COMMANDS
        is_value = set(word) <= set("<>") or (is_prefixed and word.startswith("-"))
        is_prefixed |= name in _PREFIXES
        if not (is_skipped or is_value or name in _PREFIXES):
            return None
    return None


def _text_of(script: str) -> str:
    """The beginning of a script; empty if the file is binary or cannot be read."""
    try:
        with elf.open_regular(script) as opened:
            text = opened.read(_SCRIPT_BYTES).decode(errors="replace")
    except OSError:
        return ""
    return "" if text.startswith("\x7fELF") or "\0" in text else text


def _refuse(file: str, program: str) -> None:
    facts = elf.read(program)
    if facts is not None and not facts.dynamic:
        raise UsageError(
            f"{file} is linked statically, so nothing can be preloaded: link its MPI as a shared library"
        )
    raise UsageError(f"{file} links no MPI library: name an MPI program (`ldd {file}` shows what it links)")


def _of_interpreter(program: str, env: Mapping[str, str], family: str | None) -> elf.Linked:
    """The MPI that an interpreter will load: the first that mpi4py finds of the launcher's family."""
    extension = _mpi4py_extension(program)
    linked = elf.linked_mpi(extension, env.get("LD_LIBRARY_PATH", "")) if extension else None
    if linked is not None and family in (None, linked.abi):
        return linked._replace(user="")  # mpi4py imports all functions, whatever the program calls
    asked = env.get("MPI4PY_LIBMPI")
    for path in _candidates(program, asked, family):
        abi = elf.family(path)
        if abi is not None and (family is None or abi in (family, "abi")):
            return elf.Linked(abi, os.path.basename(path), path)
    if family is not None:
        return elf.Linked(family, "", None)
    raise UsageError(
        f"no MPI library found for {program}: {remedy('mpich')}, or set MPI4PY_LIBMPI to its libmpi"
    )


def _launcher_prefix() -> list[str]:
    """Installation prefix of the launcher that started this process and of its MPI; empty if unknown."""
    try:
        launcher = os.readlink(f"/proc/{os.getppid()}/exe")
    except OSError:
        return []
    name = os.path.basename(launcher)
    is_launcher = name.startswith(("hydra", "mpirun", "mpiexec", "orte", "prte"))
    return [os.path.dirname(os.path.dirname(launcher))] if is_launcher else []


def _candidates(program: str, asked: str | None, family: str | None) -> list[str]:
    families = (family,) if family else ("mpich", "openmpi", "abi")
    names = [name for f in families for name in _LIBRARIES[f]]
    folders = []
    found = []
    for entry in asked.split(os.pathsep) if asked else ():
        if os.path.isdir(entry):
            folders.append(entry)
        else:
            located = elf.locate(entry)
            found += [located] if located else []
    folders += [os.path.join(prefix, "lib") for prefix in (*_launcher_prefix(), *_prefixes(program))]
    found += [
        path for folder in folders for name in names if os.path.isfile(path := os.path.join(folder, name))
    ]
    default = elf.locate("libmpi.so") if not family else None
    names = ([default] if default else []) + names
    return found + [place for name in names if (place := elf.locate(name))]


def _mpi4py_extension(program: str) -> str | None:
    """The extension module of an mpi4py that was built for one MPI; None if there is none.

    The module in wheels, which load any MPI, has another name.
    """
    lib = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(program))), "lib")
    pythons = [name for name in os.listdir(lib) if name.startswith("python3")] if os.path.isdir(lib) else []
    for python in pythons:
        for packages in ("site-packages", "dist-packages"):
            place = os.path.join(lib, python, packages, "mpi4py")
            names = os.listdir(place) if os.path.isdir(place) else []
            for name in names:
                if name.startswith(("MPI.cpython", "MPI.abi3")):
                    return os.path.join(place, name)
    return None


def _prefixes(program: str) -> list[str]:
    """Installation prefixes of a Python: its virtual environment, then the user's folder."""
    prefixes = [os.path.dirname(os.path.dirname(os.path.abspath(program)))]
    user = os.path.join(os.path.expanduser("~"), ".local")
    return [prefix for prefix in (*prefixes, user) if prefix != "/usr"]


def _check_launcher(file: str, linked: elf.Linked, family: str | None) -> None:
    """Refuse another MPI family's launcher, under which each rank would be in a world of its own."""
    if family is None or "abi" in (linked.abi, family) or linked.abi == family:
        return
    raise UsageError(
        f"{file} uses {NAMES[linked.abi]} ({linked.path or linked.soname}), but the launcher belongs to "
        f"{NAMES[family]}: start it with the mpirun of {NAMES[linked.abi]}"
    )


def shim_for(file: str, linked: elf.Linked) -> str:
    """The library to preload for an MPI.

    Raises `EnvironmentFault` if none is installed.
    """
    names = elf.names(linked.path) if linked.path else b""
    shim = pmpi_paths.find_shim(pmpi_paths.abi_of(linked.abi, b"MPI_Send_c\0" in names))
    if shim is None:
        raise EnvironmentFault(
            f"no library of mpicoloc fits {NAMES[linked.abi]} ({linked.path or linked.soname}), "
            f"which {file} uses: build one with `mpicoloc build --mpicc CC`, CC being the mpicc of that MPI"
        )
    return shim


def preload(found: Target, before: str = "") -> str:
    """Value of LD_PRELOAD: our library before the user's own, and sanitizers before all.

    Libraries of mpicoloc for other MPIs, perhaps left there by an earlier `export`, are removed, because they
    would make ranks wait forever.
    """
    shims = {pmpi_paths.shim_name(abi) for abi in pmpi_paths.ABIS}
    own = [
        part for part in before.replace(" ", ":").split(":") if part and os.path.basename(part) not in shims
    ]
    first = [*found.first, *(part for part in own if _is_sanitizer(os.path.basename(part)))]
    return ":".join(dict.fromkeys([*first, found.shim, *own]))
