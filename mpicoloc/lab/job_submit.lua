-- Job-submit rule of a site that pairs jobs. Put it beside slurm.conf, and list in OPERATORS the numbers of
-- the users who may use the partition for sharing. Jobs with --exclusive get a foreign AdminComment, so the
-- pairing service ignores them.
local SHARED = "shared"
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
