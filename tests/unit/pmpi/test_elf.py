"""The MPI library that a program links, found in its ELF headers."""

import os
import shutil
import subprocess
import sys

import pytest

from mpicoloc.errors import UsageError
from mpicoloc.pmpi import elf
from mpicoloc.profile import symbolize


def compiled(tmp_path, name, source, *flags):
    path = tmp_path / name
    (tmp_path / f"{name}.c").write_text(source)
    subprocess.run(["cc", "-o", path, tmp_path / f"{name}.c", *flags], check=True, timeout=60)
    return str(path)


@pytest.fixture
def fake_mpi(tmp_path):
    """Builds libraries and programs that link as MPI programs do, with no MPI installed."""

    def build(soname, through=None, *flags):
        lib = tmp_path / "lib"
        lib.mkdir(exist_ok=True)
        compiled(lib, soname, "int MPI_Init(void) { return 0; }", "-shared", "-fPIC", f"-Wl,-soname,{soname}")
        wanted = soname
        if through:
            source = "int MPI_Init(void); int work(void) { return MPI_Init(); }"
            compiled(
                lib, through, source, "-shared", "-fPIC", f"-Wl,-soname,{through}", f"-L{lib}", f"-l:{soname}"
            )
            wanted = through
        call = "work" if through else "MPI_Init"
        return compiled(
            tmp_path,
            "app",
            f"int {call}(void); int main(void) {{ return {call}(); }}",
            f"-L{lib}",
            f"-l:{wanted}",
            "-Wl,--allow-shlib-undefined",
            *flags,
        )

    return build


@pytest.mark.parametrize(
    ("soname", "abi"),
    [
        ("libmpi.so.12", "mpich"),
        ("libmpich.so.12", "mpich"),
        ("libmpi.so.40", "openmpi"),
        ("libmpi_abi.so.1", "abi"),
    ],
)
@pytest.mark.parametrize(
    ("through", "tag"),
    # DT_RUNPATH (the new tag) of a program does not serve its libraries, DT_RPATH does.
    [(None, "--enable-new-dtags"), (None, "--disable-new-dtags"), ("libphysics.so.1", "--disable-new-dtags")],
)
def test_family_and_file_by_run_path(fake_mpi, tmp_path, soname, abi, through, tag):
    app = fake_mpi(soname, through, "-Wl,-rpath,$ORIGIN/lib", f"-Wl,{tag}")
    linked = elf.linked_mpi(app, "")
    assert (linked.abi, linked.soname, linked.path) == (abi, soname, str(tmp_path / "lib" / soname))


def test_library_path_of_the_environment_counts(fake_mpi, tmp_path):
    app = fake_mpi("libmpi.so.40")
    assert elf.linked_mpi(app, str(tmp_path / "lib")).path == str(tmp_path / "lib" / "libmpi.so.40")


def test_family_is_known_even_where_the_file_is_not(fake_mpi):
    app = fake_mpi("libmpi_abi.so.1")
    linked = elf.linked_mpi(app, "")
    assert linked.abi == "abi"


@pytest.mark.parametrize("name", ["lmp", "hpcc"])
def test_same_file_as_the_loader_takes(name):
    app = shutil.which(name)
    if app is None:
        pytest.skip(f"{name} is not installed")
    loader = subprocess.run(["ldd", app], capture_output=True, text=True, check=True, timeout=30).stdout
    line = next(line for line in loader.splitlines() if "libmpi.so" in line or "libmpich.so" in line)
    assert os.path.realpath(elf.linked_mpi(app).path) == os.path.realpath(line.split("=>")[1].split()[0])


@pytest.mark.parametrize("app", ["/bin/sh", sys.executable])
def test_programs_without_mpi(app):
    assert elf.linked_mpi(app) is None


def test_scripts_are_no_elf_files(tmp_path):
    path = tmp_path / "script"
    path.write_text("#!/bin/sh\n")
    assert elf.read(str(path)) is None


def test_a_damaged_program_is_refused(tmp_path):
    with open("/bin/sh", "rb") as file:
        head = file.read(300)
    path = tmp_path / "cut"
    path.write_bytes(head)
    with pytest.raises(UsageError, match="damaged"):
        elf.read(str(path))


def test_every_cut_is_answered_or_refused(tmp_path):
    with open("/bin/sh", "rb") as file:
        image = file.read()
    path = tmp_path / "cut"
    for size in [4, 16, 63, 64, 100, 1000, len(image) // 2, len(image) - 1]:
        path.write_bytes(image[:size])
        try:
            elf.linked_mpi(str(path))
        except UsageError:
            continue


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "no program"),
        (lambda path: path.mkdir(), "folder"),
        (lambda path: path.write_text("x"), "chmod"),
    ],
)
def test_a_missing_or_idle_file_is_refused(tmp_path, make, words):
    make(tmp_path / "app")
    with pytest.raises(UsageError, match=words):
        elf.resolve_application(str(tmp_path / "app"))


def test_a_name_is_found_in_path_only(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app").write_text("#!/bin/sh\n")
    with pytest.raises(UsageError, match=r"write \./app"):
        elf.resolve_application("app")


@pytest.mark.timeout(60)
def test_a_pipe_in_the_place_of_a_file_keeps_nobody_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        elf.open_regular(str(tmp_path / "pipe"))
    assert symbolize.are_named(str(tmp_path / "pipe"), [1, 2]) == [False, False]
