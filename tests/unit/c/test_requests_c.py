"""The table of requests, under the sanitizers: threads that complete what others began."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from objects import FLAGS

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_requests_by_many_threads(tmp_path: Path, sanitizer: str) -> None:
    program = tmp_path / "test_requests"
    sources = [ROOT / "csrc/guest/calls/requests.c", ROOT / "tests/c/guest/test_requests.c"]
    command = [*shlex.split(os.environ.get("CC", "cc")), *FLAGS, f"-fsanitize={sanitizer}",
               f"-I{ROOT / 'csrc'}", *map(str, sources), "-o", str(program), "-lpthread"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    # the thread sanitizer of older compilers needs addresses that are not random
    done = subprocess.run(
        ["setarch", "-R", str(program)], capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stderr
