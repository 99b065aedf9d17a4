"""Key numbers of a job as metrics in ClusterCockpit's variant of InfluxDB's line protocol."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mpicoloc.core.number_lists import parse_cpus
from mpicoloc.core.profile import Profile, text
from mpicoloc.errors import DataError, printable
from mpicoloc.profile.frames import Frames
from mpicoloc.show import outputs
from mpicoloc.trace.export.job_metrics import end_unix_s, job_metrics


def write(job: Frames, out: str, cluster: str | None = None) -> None:
    """Write a line for each key number and processor of the job to the file `out`.

    Raises `DataError` if the profile has no host name.
    """
    profile = job.profile
    places = list(_places(profile))
    if not places:
        raise DataError(
            f"the profile of job {printable(profile.job.id)} names no host, but ClusterCockpit stores "
            "numbers by host: give a profile with ranks"
        )
    end_s = end_unix_s(profile)
    time = "" if end_s is None else f" {end_s}"
    about = {"cluster": cluster or "", "jobid": profile.job.id}
    with outputs.text_file(out) as file:
        for place in places:
            tags = "".join(f",{key}={_tag(word)}" for key, word in sorted((about | place).items()) if word)
            for name, value in job_metrics(profile).items():
                if value is not None:
                    file.write(f"mpicoloc_{name}{tags} value={float(value)!r}{time}\n")


def _places(profile: Profile) -> Iterator[dict[str, str]]:
    """Tags of each processor that the job may use, or of the node if its processors are not known.

    Processors are better: a job's page in ClusterCockpit shows only that job's processors, but node metrics
    cover all jobs on the node.
    """
    for row in profile.tables["nodes"]:
        hostname = text(row["hostname"])
        for cpu in sorted(parse_cpus(text(row["cpus"]))) if hostname else ():
            yield {"hostname": hostname, "type": "hwthread", "type-id": str(cpu)}
        if hostname and not parse_cpus(text(row["cpus"])):
            # No type-id: if there were one, cc-backend would not find the node.
            yield {"hostname": hostname, "type": "node"}


def _tag(word: str) -> str:
    """A word as a tag value; its backslashes are replaced, because they would escape the next character."""
    return re.sub("([ ,=])", r"\\\1", printable(word).replace("\\", "/"))
