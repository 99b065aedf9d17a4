"""Files of csrc/ that belong together."""

AGENT = (
    "agent.c", "agent_adapt.c", "agent_common.c", "agent_loop.c", "agent_pause.c", "agent_ranks.c",
    "agent_schedule.c", "agent_turn.c", "board.c", "entries.c", "hits.c", "loop.c", "maps.c", "options.c",
    "perf.c", "probe.c", "proc.c", "segment.c", "table.c", "tally.c", "trace.c",
    "trace_file.c", "trace_ring.c", "trap.c",
)  # fmt: skip
"""The node agent with what it calls; none of them knows MPI."""

KEEPER = (
    "keeper.c",
    "keeper_checkpoint.c",
    "keeper_files.c",
    "keeper_writer.c",
    "agent_thread.c",
    "pmu.c",
    *AGENT,
)
