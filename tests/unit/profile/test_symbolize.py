import os
import random
import re
import subprocess
from dataclasses import replace

import pytest
import sample

from mpicoloc.core.profile import table
from mpicoloc.errors import UsageError
from mpicoloc.pmpi import elf
from mpicoloc.profile import symbolize, symbolize as profile_sites
from mpicoloc.profile.frames import Frames
from mpicoloc.profile.symbolize import Place, resolve

PROGRAM = """\
static inline __attribute__((always_inline)) int inlined(int x)
{
    return getpid() + x;
}
int outer(int x)
{
    int y = inlined(x);
    return y + getpid();
}
"""
KINDS = {"pie": ["-fPIE", "-pie"], "fixed": ["-fno-pie", "-no-pie"], "library": ["-fPIC", "-shared"]}


def build(folder, flags, name="app"):
    """A program of two calls in one function, and the addresses behind them."""
    # Optimised as real programs are: the inlined function has no code of its own.
    source = f"#include <unistd.h>\n#line 1\n{PROGRAM}int main(void)\n{{\n    return outer(1);\n}}\n"
    (folder / "calls.c").write_text(source)
    path = folder / name
    argv = ["gcc", "-O1", "-fno-inline-functions-called-once", "-Wl,--build-id=sha1", *flags]
    subprocess.run([*argv, "-o", path, folder / "calls.c"], check=True, timeout=60)
    lines = subprocess.run(["objdump", "-d", path], check=True, capture_output=True, text=True, timeout=60)
    body = lines.stdout.split("<outer>:")[1].split("\n\n")[0].splitlines()
    behind = [i + 1 for i, line in enumerate(body) if "call" in line]
    return path, [int(body[i].split(":")[0], 16) for i in behind]


@pytest.mark.parametrize("kind", KINDS)
def test_function_file_and_line_of_a_call(tmp_path, kind):
    path, (first, second) = build(tmp_path, ["-g", "-fno-optimize-sibling-calls", *KINDS[kind]])
    module = (str(path), elf.build_id(path))
    sites = [(1, second), (0, 5), (1, first), (-1, 7), (1, 1 << 40)]
    found, reasons = resolve([("/nowhere", "00"), module], sites)
    source = str(tmp_path / "calls.c")
    assert found == [Place("outer", source, 8), Place(), Place("inlined", source, 3), Place(), Place()]
    assert str(found[0]) == "outer calls.c:8" and str(found[1]) == ""
    assert reasons == ["/nowhere cannot be read: No such file or directory"]


def test_without_debug_information_the_function_is_known_and_stripped_nothing(tmp_path):
    path, (first, _) = build(tmp_path, ["-g0"])
    module = (str(path), elf.build_id(path))
    assert resolve([module], [(0, first)])[0] == [Place("outer")]
    subprocess.run(["strip", path], check=True, timeout=60)
    assert resolve([module], [(0, first)]) == ([Place()], [])


def test_a_stripped_library_names_only_what_its_symbols_cover(tmp_path):
    """Between two functions that it exports lies one that it does not: addr2line names the one before."""
    hidden = "static __attribute__((noinline)) int hidden(int x)\n{\n    return getpid() + x;\n}\n"
    source = (
        "#include <unistd.h>\nint before(int x)\n{\n    return getpid() + x;\n}\n" + hidden +
        "int behind(int x)\n{\n    return hidden(x) + getpid();\n}\n"
    )  # fmt: skip
    (tmp_path / "three.c").write_text(source)
    path = tmp_path / "libthree.so"
    # As they stand in the source, one behind the other.
    argv = ["gcc", "-g0", "-O1", "-fno-toplevel-reorder", "-fPIC", "-shared", "-Wl,--build-id=sha1"]
    subprocess.run([*argv, "-o", path, tmp_path / "three.c"], check=True, timeout=60)
    at = returns_of_calls(path)
    assert [name for name in at if name in ("before", "hidden", "behind")] == ["before", "hidden", "behind"]
    sites = [(0, at[name]) for name in ("before", "hidden", "behind")]
    module = (str(path), elf.build_id(path))
    assert resolve([module], sites)[0] == [Place("before"), Place("hidden"), Place("behind")]
    subprocess.run(["strip", path], check=True, timeout=60)
    asked = f"addr2line -f -e {path} {sites[1][1] - 1:#x}"
    guess = subprocess.run(asked.split(), check=True, capture_output=True, text=True, timeout=60).stdout
    assert guess.startswith("before\n"), "addr2line no longer guesses: drop the check of sizes"
    assert resolve([module], sites) == ([Place("before"), Place(), Place("behind")], [])


def returns_of_calls(path):
    """The address behind the first call in each function."""
    lines = subprocess.run(["objdump", "-d", path], check=True, capture_output=True, text=True, timeout=60)
    found = {}
    for body in re.split(r"\n(?=[0-9a-f]+ <)", lines.stdout):
        rows = [row for row in body.splitlines() if row.startswith(" ")]
        behind = [rows[i + 1].split(":")[0] for i, row in enumerate(rows[:-1]) if "call" in row]
        if behind and (name := re.match(r"[0-9a-f]+ <(\w+)>", body)):
            found[name[1]] = int(behind[0], 16)
    return found


def test_symbols_of_damaged_files_name_nothing(tmp_path):
    path, (first, _) = build(tmp_path, ["-g0"])
    whole = path.read_bytes()
    assert symbolize.are_named(str(path), [first, 0, 1 << 63]) == [True, False, False]
    rng = random.Random(1)
    for _ in range(300):
        broken = bytearray(whole[: rng.choice((len(whole), rng.randrange(4, len(whole))))])
        for _ in range(rng.randrange(1, 5)):
            # Most of what is read stands in the header and in the table of sections at the end.
            at = rng.choice((rng.randrange(4, min(64, len(broken))), -rng.randrange(1, len(broken))))
            broken[at] = rng.randrange(256)
        path.write_bytes(broken)
        assert len(symbolize.are_named(str(path), [first, 7])) == 2
    path.write_bytes(b"")
    assert symbolize.are_named(str(path), [first]) == [False]
    assert symbolize.are_named("/nowhere", [first]) == [False]


def test_only_the_file_that_the_job_ran_is_asked(tmp_path, monkeypatch):
    path, (first, _) = build(tmp_path, ["-g"])
    before = elf.build_id(path)
    build(tmp_path, ["-g", "-O2"])
    _, reasons = resolve([(str(path), before)], [(0, first)])
    assert reasons == [f"{path} is not the file that the job ran: it was rebuilt"]
    assert "no build ID" in resolve([(str(path), "")], [(0, first)])[1][0]
    os.mkfifo(tmp_path / "pipe")
    assert "it is not a regular file" in resolve([(str(tmp_path / "pipe"), before)], [(0, first)])[1][0]
    path.write_bytes(path.read_bytes()[:200])
    assert "damaged" in resolve([(str(path), before)], [(0, first)])[1][0]
    with pytest.raises(UsageError, match="damaged"):
        elf.build_id(path)


def test_no_addr2line_and_one_that_takes_too_long(tmp_path, monkeypatch):
    path, (first, _) = build(tmp_path, ["-g"])
    module = (str(path), elf.build_id(path))
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr(symbolize, "TIME_S", 0.2)
    monkeypatch.setattr(symbolize, "_program", lambda: str(slow))
    assert "more debug information than" in resolve([module], [(0, first)])[1][0]
    monkeypatch.setattr(symbolize, "_program", lambda: None)
    assert "install binutils" in resolve([module], [(0, first)])[1][0]


def test_build_ids_are_those_of_the_linker(tmp_path):
    path, _ = build(tmp_path, ["-Wl,--build-id=0x0102aabb"])
    assert elf.build_id(path) == "0102aabb"
    path, _ = build(tmp_path, ["-Wl,--build-id=none"])
    assert elf.build_id(path) == ""
    assert elf.build_id(tmp_path / "calls.c") == ""


def test_places_of_a_profile(tmp_path):
    path, (first, second) = build(tmp_path, ["-g"])
    profile = sample.profile()
    tables = dict(profile.tables)
    tables["modules"] = table("modules", {"path": [str(path)], "build_id": [elf.build_id(path)]})
    columns = {"rank": [0, 1, 0], "i_site": [1, 1, 0], "i_module": [0, 0, -1], "offset": [first, second, 0]}
    tables["call_sites"] = table("call_sites", columns)
    job = Frames(type(profile)(**{**profile.__dict__, "tables": tables}))
    assert job.places()["place"].tolist() == ["inlined calls.c:3", "outer calls.c:8", ""]
    assert job.places(job.call_sites.head(1))["line"].tolist() == [3]
    assert job.places().attrs["reasons"] == []


def test_calls_in_one_function_are_told_apart(tmp_path):
    """By their lines; without debug information, or of one line, by their offsets."""
    lines, bare = build(tmp_path, ["-g"], "lines"), build(tmp_path, ["-g0"], "bare")
    modules = [str(path) for path, _ in (lines, bare)]
    ids = [elf.build_id(path) for path in modules]
    first, second = bare[1]
    rows = {
        "call": ["MPI_Send", "MPI_Send", "MPI_Send", "MPI_Recv", "MPI_Send", "MPI_Send", "MPI_Send"],
        "i_site": [1, 2, 3, 4, 5, 6, 0],
        "i_module": [1, 1, 0, 1, 0, -1, 1],
        "offset": [first, second, lines[1][0], first, lines[1][1], 7, second],
    }
    tables = {"modules": table("modules", {"path": modules, "build_id": ids})}
    profile = replace(sample.profile(), tables=tables)
    found = profile_sites.site_words(profile, table("call_sites", rows))
    outer = [f"bare+{offset:#x}" for offset in (first, second)]
    assert [name for name, _ in found] == [
        f"outer {outer[0]}", f"outer {outer[1]}", "inlined calls.c:3", "outer", "outer calls.c:8", "", ""
    ]  # fmt: skip
    assert [offset for _, offset in found[3:]] == [
        outer[0], f"lines+{lines[1][1]:#x}", "?+0x7", "(others)"
    ]  # fmt: skip
    assert profile_sites.site_words(profile, table("call_sites", rows), n_looked_up=0) == [
        ("", name) for _, name in found
    ]
