"""Programs that say what those of some version of Slurm do."""

import json
from pathlib import Path

UPDATE = 'echo "$@" >> {0}/said'


def stand_in(folder, monkeypatch, scripts):
    """Lines of shell by the name of the program; {0} in them is the folder."""
    for name, script in scripts.items():
        (folder / name).write_text("#!/bin/sh\n" + script.format(folder) + "\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")


def answering(folder, monkeypatch, update=UPDATE):
    """A Slurm 22.05 as it was once; it keeps what it is told in `said`, or does `update` (shell)."""
    answers = json.loads((Path(__file__).parent / "slurm_answers.json").read_text())
    for name in ("squeue", "sinfo"):
        (folder / f"{name}.json").write_text(json.dumps(answers[name]))
    partitions = (
        "PartitionName=whole PriorityTier=1\nPartitionName=shared PriorityTier=10 OverSubscribe=FORCE:2\n"
    )
    (folder / "partitions").write_text(partitions)
    scontrol = f'case "$1" in update) {update};; *) cat {{0}}/partitions;; esac'
    scripts = {"squeue": "cat {0}/squeue.json", "sinfo": "cat {0}/sinfo.json", "scontrol": scontrol}
    stand_in(folder, monkeypatch, scripts)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    return folder
