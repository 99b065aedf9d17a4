"""The arrows of csrc/: which folder may include which, and how large a folder is."""

import re
from pathlib import Path

from mpicoloc.pmpi import build_shim

CSRC = Path(__file__).resolve().parents[2] / "csrc"
N_FILES_MAX = 20
# What a folder includes beside itself and the system's headers: processes share only common/ and memory.
ALLOWED = {
    "common": set(),
    "common/board": {"common"},
    "common/counters": {"common"},
    "guest/count": {"common"},
    "guest": {"common", "common/counters", "guest/count"},
    "guest/mpi": {"common", "guest"},
    "guest/calls": {"common", "guest", "guest/mpi"},
    "guest/world": {"common", "common/counters", "guest", "guest/mpi", "guest/calls"},
    "trace": {"common"},
    "agent/relocation": {"common"},
    "agent/code": {"common"},
    "agent/count": {"common", "agent/code", "agent/relocation", "agent/shutter"},
    "agent/shutter": {"common", "common/board"},
    "agent/meters": {"common", "common/counters", "agent/count", "agent/shutter"},
    "agent/bubbles": {"common", "agent/shutter", "bubble"},
    "agent": {"common", "agent/bubbles", "agent/meters", "agent/shutter", "trace"},
    "keeper": {"common", "common/board", "common/counters", "agent", "trace"},
    "bubble": set(),
    "bubble/hog": {"bubble"},
    "replay": set(),
    "spank": set(),
}
GENERATED = {"options_gen.h": "common", "calls_gen.h": "guest/mpi"}
FILES = sorted(path for path in CSRC.rglob("*.[ch]") if path.name not in GENERATED)


def includes(text):
    return re.findall(r'^\s*#\s*include\s+"(.+)"', text, re.MULTILINE)


def wrong_includes(folder, text):
    """Headers that a file of this folder may not include."""
    return [
        name
        for name in includes(text)
        if (GENERATED.get(name) or str(Path(name).parent)) not in {folder, *ALLOWED[folder]}
    ]


def test_includes_name_their_folder_and_follow_the_arrows():
    assert {str(path.relative_to(CSRC).parent) for path in FILES} == set(ALLOWED)
    texts = {str(path.relative_to(CSRC)): path.read_text() for path in FILES}
    wrong = {name: wrong_includes(str(Path(name).parent), text) for name, text in texts.items()}
    assert {name: found for name, found in wrong.items() if found} == {}
    named = {name for text in texts.values() for name in includes(text)}
    assert {name for name in named if name not in GENERATED and not (CSRC / name).is_file()} == set()


def test_what_a_guest_must_not_see_is_found():
    assert wrong_includes("guest", '#include "common/proc.h"\n# include "agent/agent.h"\n') == [
        "agent/agent.h"
    ]
    assert wrong_includes("common", '#include "guest/hooks.h"\n') == ["guest/hooks.h"]
    assert wrong_includes("guest/calls", '#include "guest/world/world.h"\n') == ["guest/world/world.h"]


def test_no_folder_is_too_large():
    counts = {folder: sum(path.parent == CSRC / folder for path in FILES) for folder in ALLOWED}
    assert {folder: n for folder, n in counts.items() if not 0 < n <= N_FILES_MAX} == {}


def test_the_preloaded_library_holds_no_code_of_another_process():
    folders = {path.relative_to(CSRC).parts[0] for path in build_shim.c_files(CSRC, build_shim.SHIM)}
    assert folders == {"common", "guest"}
