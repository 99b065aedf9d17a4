"""The script of the tutorial that submits jobs and waits for their end."""

import os
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[3] / "examples" / "slurm-day" / "submit.sh"
SQUEUE = """#!/bin/sh
echo asked >> asked
case $(wc -l < asked) in 1) exit 1;; 2) echo running;; esac
"""
"""slurmctld starts again, then there is a job, then none."""


def test_it_waits_for_the_jobs_while_squeue_fails(tmp_path):
    for name, text in (("squeue", SQUEUE), ("sbatch", "#!/bin/sh\necho 7\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ["sh", str(SCRIPT), "shared"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout == "7\n" * 20
    assert (tmp_path / "asked").read_text() == "asked\n" * 3
