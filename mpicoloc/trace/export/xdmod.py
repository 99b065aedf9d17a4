"""Key numbers of a job as one line of JSON: a summary document of Open XDMoD's job performance module."""

from __future__ import annotations

import json
import re
from typing import Any

from mpicoloc.core.plain_values import plain
from mpicoloc.core.profile import Profile, text
from mpicoloc.profile.frames import Frames
from mpicoloc.profile.summary import co_runners
from mpicoloc.show import outputs
from mpicoloc.trace.export.job_metrics import end_unix_s, job_metrics

_BATCH_ID = re.compile(r"[0-9]{1,18}(?=[.-]|$)")
"""The batch system's job number at the begin of a job id, before a step or process number."""
_NOT_MEASURED = {"error": 3}
"""INSUFFICIENT_DATA among SUPReMM's processing errors."""


def document(profile: Profile) -> dict[str, Any]:
    """A job summary with the parts that a profile has, and its key numbers as a plugin's section."""
    job, end_s = profile.job, end_unix_s(profile)
    number = _BATCH_ID.match(job.id)
    batch_id = number[0] if number else job.id
    hosts = dict.fromkeys(text(row["hostname"]) for row in profile.tables["nodes"])
    times = {} if end_s is None else {"start_time": int(job.start_unix_s), "end_time": end_s}
    return {
        "_id": f"{batch_id}-{'unknown' if end_s is None else end_s}",
        "summarization": {"datasource": "mpicoloc", "complete": not profile.partial},
        "acct": {
            "id": batch_id,
            "local_job_id": int(batch_id) if number else batch_id,
            "user": job.user or None,
            "jobname": job.batch_name or None,
            "host_list": list(filter(None, hosts)),
            "nodes": job.n_nodes,
            "ncpus": job.n_cores,
            **times,
        },
        "procDump": {"constrained": job.command.split()[:1], "unconstrained": []},
        "shared": bool(co_runners(profile)),
        "mpicoloc": {
            name: _NOT_MEASURED if value is None else {"avg": value, "cnt": 1}
            for name, value in job_metrics(profile).items()
        },
    }


def write(job: Frames, out: str) -> None:
    """Write the job's summary to the file `out`."""
    with outputs.text_file(out) as file:
        file.write(json.dumps(plain(document(job.profile)), allow_nan=False) + "\n")
