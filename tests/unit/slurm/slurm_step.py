"""Step 0 of job 11: its note, what Slurm's commands say of it, and the record made of both."""

import json
from dataclasses import asdict

from mpicoloc.slurm import client, records as slurm_record

KEY = b"0123456789abcdef0123456789abcdef"
JOB = {"JobID": "11", "UserID": "1000", "ArrayJobID": "11", "ArrayTaskID": "N/A", "RestartCnt": "0",
       "NumNodes": "2", "NumCPUs": "8", "SubmitTime": "1795377520", "StartTime": "1795377523",
       "TimeUsed": "10:05", "EndTime": "1795378128", "Cluster": "lab", "Partition": "shared",
       "BatchFlag": "0", "Account": "(null)", "StateCompact": "R", "HetJobID": "0", "HetJobOffset": "0",
       "admin_comment": "", "tres-alloc": "cpu=8,mem=16G,node=2,billing=8"}  # fmt: skip
STEP = (
    "StepId=11.0 UserId=1000 StartTime=1795377524 TimeLimit=UNLIMITED State=RUNNING Partition=shared "
    "NodeList=n2 Nodes=1 CPUs=2 Tasks=2 Name=sh Network=(null) TRES=cpu=2,mem=0,node=1 ResvPorts=(null)\n"
)


def write_note(spool, note):
    """As the plugin does."""
    path = spool / ".steps" / f"{note.job}.{int(note.begun_unix_s)}.{note.step}.json"
    path.write_text(json.dumps({"schema_version": 1, **asdict(note)}))
    return path


def squeue(**changes):
    row = JOB | changes
    cells = [(row[name], client._WIDTH) for name in client._FIELDS]
    cells += [(row["admin_comment"], client.COMMENT_WIDTH), (row["Account"], client._WIDTH)]
    return "".join(f"{text:{width}.{width}}" for text, width in cells) + "\n"


def squeue_script(folder, script=None, **changes):
    """Shell that answers about job 11, or does `script`; asked for all jobs, only what it is asked for."""
    fields = ("JobID", "UserID", "StateCompact", "BatchFlag")
    (folder / "told").write_text(squeue(**changes))
    (folder / "all").write_text("".join(f"{(JOB | changes)[name]:24}" for name in fields) + "\n")
    of_all = f"*{':24,'.join(fields)}:24*"
    return f'echo >>{{0}}/asked; case "$*" in {of_all}) cat {{0}}/all;; *) {script or "cat {0}/told"};; esac'


def record(told=None, step="0", now_s=1795377604.25):
    job, *of_step = told or [squeue(), STEP]
    start = client.parse_start(job, 11, 1000)
    return slurm_record.parse_step(start, step, *(of_step or [""]), "ada", now_s)
