"""What the daemons of a Slurm lab read: slurm.conf and the files beside it. Pure: texts from numbers."""

from __future__ import annotations

from dataclasses import dataclass

ROOT = "/run/mpicoloc-slurm"
"""Folder of the labs; root's, so that nobody else can put a lab's files there."""
MAX_NODES = 16
CPUS = 4
"""Of each node by default, whatever the machine has."""
PARTITIONS = {
    "whole": "Default=YES OverSubscribe=EXCLUSIVE",
    "shared": "Default=NO OverSubscribe=FORCE:2 PriorityTier=10",
}
"""A node for one job, where jobs go by default, or up to two jobs on a core. What is put into the second one
comes first: a partner that the scheduler looks at after those who wait for the whole node comes too late."""


@dataclass(frozen=True)
class Plan:
    """A cluster: its name, nodes, processors of each node, first of ``n_nodes + 1`` ports in a row.

    `is_guarded`: only root puts jobs into partition shared.
    `memory_mib`: each node's, of which jobs get what they ask for; None: it is not counted.
    """

    name: str
    n_nodes: int
    n_cpus: int
    port: int
    spank: str | None = None
    is_guarded: bool = False
    memory_mib: int | None = None

    @property
    def folder(self) -> str:
        """Where its files lie."""
        return f"{ROOT}/{self.name}"

    @property
    def nodes(self) -> list[str]:
        """Names of its nodes, n1 and up."""
        return [f"n{k}" for k in range(1, self.n_nodes + 1)]


def texts(plan: Plan) -> dict[str, str]:
    """Files of the cluster: name in its folder -> text.

    Result: ``slurm.conf`` and what it names.
    """
    return {
        "slurm.conf": _slurm_conf(plan),
        "topology.conf": _topology_conf(plan.n_nodes),
        # Any other plugin wants systemd, or control groups of its own.
        "cgroup.conf": "CgroupPlugin=cgroup/v1\n",
        # /tmp is one for all nodes, /dev/shm is each node's own.
        "mpi.conf": "PMIxCliTmpDirBase=/dev/shm\n",
        "plugstack.conf": f"optional {plan.spank}\n" if plan.spank else "",
        "task_prolog": _TASK_PROLOG,
        "job_submit.lua": JOB_SUBMIT if plan.is_guarded else JOB_SUBMIT.replace('"shared"', "nil", 1),
        "hosts": "127.0.0.1 localhost " + " ".join(plan.nodes) + "\n::1 localhost\n",
    }


# Open MPI leaves the loopback out, and here all nodes are behind it.
_TASK_PROLOG = """#!/bin/sh
echo export OMPI_MCA_btl_tcp_if_include=lo
echo export OMPI_MCA_oob_tcp_if_include=lo
"""


JOB_SUBMIT = """local SHARED = "shared"
local OPERATORS = { [0] = true }
-- What decides where a job begins, beside whom, and when.
local PLACE = {
    "req_nodes", "dependency", "min_nodes", "max_nodes", "min_cpus", "max_cpus",
    "num_tasks", "ntasks_per_node", "cpus_per_task",
}

local function is_shared(partition)
    return SHARED and ("," .. (partition or "") .. ","):find("," .. SHARED .. ",", 1, true)
end

local function is_placed(job)
    for _, name in ipairs(PLACE) do
        local value = job[name]
        if value and value ~= slurm.NO_VAL and value ~= slurm.NO_VAL16 then
            return true
        end
    end
    return false
end

local function is_allowed(job, record, uid)
    if OPERATORS[uid] then
        return slurm.SUCCESS
    elseif is_shared(job.partition) then
        slurm.log_user("jobs come into partition %s by mpicoloc only", SHARED)
        return slurm.ERROR
    elseif is_shared(record.partition) and (job.partition or "") == "" and is_placed(job) then
        slurm.log_user("mpicoloc has placed this job: move it out of partition %s first", SHARED)
        return slurm.ERROR
    end
    return slurm.SUCCESS
end

function slurm_job_submit(job, partitions, uid)
    if job.shared == 0 then
        job.admin_comment = "exclusive"
    end
    return is_allowed(job, {}, uid)
end

function slurm_job_modify(job, record, partitions, uid)
    return is_allowed(job, record, uid)
end
"""
"""Rule of a site that pairs: users do not put jobs into the partition for sharing themselves, and one that
said --exclusive is left alone, as it has a note of somebody else."""


_SLURM_CONF = """ClusterName={name}
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
JobSubmitPlugins=lua
MpiDefault=pmix
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog={folder}/task_prolog
SwitchType=switch/none
TopologyPlugin=topology/tree
SelectType=select/cons_tres
SelectTypeParameters={select}
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,batch_sched_delay=0
SlurmdParameters=config_overrides
PlugStackConfig={folder}/plugstack.conf
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/%n.log
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/log/jobs.txt
MailProg=/bin/true
ReturnToService=2
KillWait=5
NodeName=n[1-{last}] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{ports}] {size}
{partitions}"""


def _slurm_conf(plan: Plan) -> str:
    last = plan.n_nodes
    select = "CR_Core"
    if plan.memory_mib:
        # Half a node's for who names none, else such a job would keep everybody out.
        select = f"CR_Core_Memory\nDefMemPerCPU={max(plan.memory_mib // (2 * plan.n_cpus), 1)}"
    return _SLURM_CONF.format(
        name=plan.name,
        folder=plan.folder,
        port=plan.port,
        ports=f"{plan.port + 1}-{plan.port + last}",
        last=last,
        size=f"CPUs={plan.n_cpus} RealMemory={plan.memory_mib or 1000}",
        select=select,
        partitions="".join(
            f"PartitionName={name} Nodes=ALL {words} DefaultTime=10 MaxTime=60 State=UP\n"
            for name, words in PARTITIONS.items()
        ),
    )


def _topology_conf(n_nodes: int) -> str:
    """Two levels: switches of two nodes in a small cluster, of four in a larger one, and one above them."""
    width = 2 if n_nodes <= 4 else 4
    leaves = [range(at, min(at + width, n_nodes + 1)) for at in range(1, n_nodes + 1, width)]
    lines = [f"SwitchName=s{k} Nodes=n[{leaf[0]}-{leaf[-1]}]" for k, leaf in enumerate(leaves, 1)]
    return "\n".join([*lines, f"SwitchName=top Switches=s[1-{len(leaves)}]"]) + "\n"
