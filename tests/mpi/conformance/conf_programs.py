"""Programs of the suite: all cases that an MPI has in a language, one subroutine each, compiled."""

import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

import conf_translate

from mpicoloc.pmpi import build_shim, generate

HERE = Path(__file__).resolve().parent
CSRC = HERE.parents[2] / "csrc"
LIMIT_S = 300
CALLS = generate.load_calls(CSRC / build_shim.CALLS)
C_VARIABLES = """
static int rank, size, next, prev, i, n, tries, which, flag, high;
static const int no = 0, yes = 1;
static int sbuf[256], rbuf[256], wbuf[4096], indices[64], dims[64], periods[64], remain[64], coords[64];
static int counts[64], displs[64], counts2[64], displs2[64];
static MPI_Count big_counts[64], big_displs[64], big_counts2[64], big_displs2[64], big_n;
static MPI_Aint far_counts[64], far_displs[64], far_counts2[64], far_displs2[64], extent, place;
static MPI_Offset offset;
static MPI_Comm comm, comm2, inter;
static MPI_Group group, group2, group3;
static MPI_Win win;
static MPI_File fh;
static MPI_Op op;
static MPI_Datatype dtype, dtypes[64], dtypes2[64];
static MPI_Request request, request2, requests[64];
static MPI_Message message;
static MPI_Status status, statuses[64];
static void *base;
static const char *path;
static char text[MPI_MAX_DATAREP_STRING];
#define MOD(a, b) ((a) % (b))
"""
F_VARIABLES = """
  integer :: rank, size, next, prev, i, n, tries, which, ierr
  logical :: flag, high, periods(64), remain(64)
  logical, parameter :: no = .false., yes = .true.
  integer, target :: sbuf(256), rbuf(256), wbuf(4096)
  integer :: indices(64), dims(64), coords(64), counts(64), displs(64), counts2(64), displs2(64)
  integer(MPI_COUNT_KIND) :: big_counts(64), big_displs(64), big_counts2(64), big_displs2(64), big_n
  integer(MPI_ADDRESS_KIND) :: far_counts(64), far_displs(64), far_counts2(64), far_displs2(64), extent, place
  integer(MPI_OFFSET_KIND) :: offset
  {Comm} :: comm, comm2, inter
  {Group} :: group, group2, group3
  {Win} :: win
  {File} :: fh
  {Op} :: op
  {Datatype} :: dtype, dtypes(64), dtypes2(64)
  {Request} :: request, request2, requests(64)
  {Message} :: message
  {Status} :: status{one}, statuses({many}64)
  {base} :: base
  {session}
  character(len=1024) :: path
  character(len=MPI_MAX_DATAREP_STRING) :: text
"""
MODULES = {"mpif_h": "", "use_mpi": "  use mpi\n", "use_mpi_f08": "  use mpi_f08\n"}
HANDLES = ("Comm", "Group", "Win", "File", "Op", "Datatype", "Request", "Message", "Status")


@dataclass(frozen=True)
class Library:
    """Functions of an MPI: C prototypes, and symbols of the Fortran libraries."""

    family: object
    mpi: str
    prototypes: dict
    fortran_symbols: frozenset

    def is_wrapped(self, name):
        """Whether the shim has a wrapper for a function."""
        return bool(generate.wrapped([self.prototypes[name]], CALLS))

    def has(self, name, language):
        """Whether `name` can be called in this language."""
        if name not in self.prototypes:
            return False
        base, large = name.removesuffix("_c").lower(), "large_" * name.endswith("_c")
        if language == "c":
            return True
        if language == "use_mpi_f08":
            forms = {f"mpi_{base}_f08_{large}", f"mpi_{base}_f08ts_{large}"}
            return bool(forms & self.fortran_symbols)
        return not large and f"mpi_{base}_" in self.fortran_symbols

    def cases(self, cases, language):
        """Those of `cases` that can be run in this language."""
        return [
            case
            for case in cases
            if case.is_for(self.mpi, language) and all(self.has(name, language) for name in case.functions)
        ]


def prototypes_of(mpicc):
    """All functions that the mpi.h of a compiler declares, by name without `MPI_`."""
    text = generate.preprocess(["cc"], build_shim.include_dirs_of(mpicc), "mpi.h")
    return {p.name.removeprefix("MPI_"): p for p in generate.parse_prototypes(text)}


def _find_library(name, folders):
    """The file that the linker would take."""
    for folder in folders:
        if (folder / f"lib{name}.so").exists():
            return str(folder / f"lib{name}.so")
    told = _output(["cc", f"-print-file-name=lib{name}.so"]).strip()
    return told if "/" in told else None


def _fortran_symbols(mpif90):
    link = _output([mpif90, "--showme:link"]) or _output([mpif90, "-show"])
    words = shlex.split(link)
    folders = [Path(word[2:]) for word in words if word.startswith("-L")]
    paths = [_find_library(word[2:], folders) for word in words if word.startswith("-l") and "mpi" in word]
    listed = _output(["nm", "-D", *filter(None, paths)])
    return frozenset(re.findall(r" [TW] (mpi_\w+)", listed))


def _output(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    return done.stdout if done.returncode == 0 else ""


def _name_of(family):
    """The MPI with its major version: mpich4, openmpi5, ...; abi for the standard one's header."""
    if family.name == "abi":
        return "abi"
    source = "#include <mpi.h>\nmpich=MPICH_VERSION\nopenmpi=OMPI_MAJOR_VERSION\n"
    include = [f"-I{path}" for path in build_shim.include_dirs_of(family.mpicc)]
    done = subprocess.run(
        ["cc", "-E", "-P", *include, "-x", "c", "-"], input=source, capture_output=True, text=True, check=True
    )
    name, version = re.search(r'(mpich|openmpi)="?(\d+)', done.stdout).groups()
    return name + version


def library(family):
    """Inspect the MPI of a `shimlab.Family`."""
    symbols = _fortran_symbols(family.mpif90)
    return Library(family, _name_of(family), prototypes_of(family.mpicc), symbols)


def c_source(cases, prototypes):
    """The C program of these cases."""
    parts = ["#include <mpi.h>", "void conf_mark(const char *name, int tries);"]
    parts += ["int conf_wants(const char *name);", "const char *conf_file(void);", C_VARIABLES]
    if "Session_init" in prototypes:  # Open MPI 5 calls itself version 3.1
        parts += ["static MPI_Session session;"]
    for case in cases:
        body = conf_translate.to_c(case.body, prototypes)
        parts += [f"static void case_{case.name}(void)\n{{\n{body}\n}}\n"]
    parts += ["int main(int argc, char **argv)", "{", "    MPI_Init(&argc, &argv);"]
    parts += ["    MPI_Comm_rank(MPI_COMM_WORLD, &rank);", "    MPI_Comm_size(MPI_COMM_WORLD, &size);"]
    parts += ["    next = (rank + 1) % size;", "    prev = (rank + size - 1) % size;"]
    parts += ["    path = conf_file();", '    conf_mark("start", 0);']
    for case in cases:
        sizes = " || ".join(f"size == {n}" for n in case.ranks)
        parts += [f'    if (({sizes}) && conf_wants("{case.name}")) {{', "        tries = 0;"]
        parts += [f"        case_{case.name}();", "        MPI_Barrier(MPI_COMM_WORLD);"]
        parts += [f'        conf_mark("{case.name}", tries);', "    }"]
    return "\n".join([*parts, "    MPI_Finalize();", "    return 0;", "}", ""])


def _f_declarations(language, has_sessions):
    is_f08 = language == "use_mpi_f08"
    types = {name: f"type(MPI_{name})" if is_f08 else "integer" for name in HANDLES}
    return F_VARIABLES.format(
        **types,
        one="" if is_f08 else "(MPI_STATUS_SIZE)",
        many="" if is_f08 else "MPI_STATUS_SIZE, ",
        session=(f"{'type(MPI_Session)' if is_f08 else 'integer'} :: session" if has_sessions else ""),
        base="type(c_ptr)" if is_f08 else "integer(MPI_ADDRESS_KIND)",
    )


def fortran_source(cases, prototypes, language):
    """The Fortran program of these cases."""
    uses = "  use, intrinsic :: iso_c_binding, only: c_ptr\n" + MODULES[language]
    include = "  include 'mpif.h'\n" if language == "mpif_h" else ""
    declarations = _f_declarations(language, "Session_init" in prototypes)
    parts = [f"module conf\n{uses}  implicit none\n{include}{declarations}contains"]
    for case in cases:
        body = conf_translate.to_fortran(case.body, prototypes)
        parts += [f"  subroutine case_{case.name}\n{body}\n  end subroutine\n"]
    parts += ["end module\n", "program main", "  use conf", "  implicit none"]
    parts += ["  integer, external :: conf_wants"]
    parts += ["  call MPI_Init(ierr)", "  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)"]
    parts += ["  call MPI_Comm_size(MPI_COMM_WORLD, size, ierr)", "  next = mod(rank + 1, size)"]
    parts += ["  prev = mod(rank + size - 1, size)", "  call conf_file(path)", "  call conf_mark('start', 0)"]
    for case in cases:
        sizes = " .or. ".join(f"size == {n}" for n in case.ranks)
        parts += [f"  if ({sizes}) then", f"  if (conf_wants('{case.name}') /= 0) then", "    tries = 0"]
        parts += [f"    call case_{case.name}", "    call MPI_Barrier(MPI_COMM_WORLD, ierr)"]
        parts += [f"    call conf_mark('{case.name}', tries)", "  end if", "  end if"]
    return "\n".join([*parts, "  call MPI_Finalize(ierr)", "end program", ""])


def build(lib, language, cases, folder):
    """The program of these cases, compiled in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / f"conformance-{lib.family.name}-{language}"
    marks = _marks(folder)
    if language == "c":
        source = out.with_suffix(".c")
        source.write_text(c_source(cases, lib.prototypes))
        _compile([lib.family.mpicc, "-O0", "-g", "-w", source, marks, "-o", out])
    else:
        source = out.with_suffix(".F90")
        source.write_text(fortran_source(cases, lib.prototypes, language))
        flags = ["-O0", "-g", "-w", "-fallow-argument-mismatch", "-ffree-line-length-none", f"-J{folder}"]
        _compile([lib.family.mpif90, *flags, source, marks, "-o", out])
    return out


def build_spawn(family, folder):
    """The program that starts and meets other processes."""
    marks = _marks(folder)
    _compile([family.mpicc, "-O0", "-g", "-w", HERE / "spawn.c", marks, "-o", folder / "spawn"])
    return folder / "spawn"


def _marks(folder):
    _compile(["cc", "-O1", "-g", "-c", f"-I{CSRC}", HERE / "marks.c", "-o", folder / "marks.o"])
    return folder / "marks.o"


def _compile(command):
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, f"{command}:\n{done.stderr[:6000]}"
