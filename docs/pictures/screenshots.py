"""Pictures of pages in a browser; make.sh says which. python screenshots.py WHAT FILE-OR-ADDRESS OUT.png"""

import sys
import time
import urllib.parse
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "e2e"))
import perfetto_ui

LATE = """
    select slice.id, call.ts, call.dur from slice join slice call on call.id = slice.parent_id
    where slice.name = 'sender there' and call.name = 'MPI_Waitall' order by call.dur desc limit 1"""
SHOW = """
    const [id, begin, width] = arguments;
    for (const command of ["ToggleLeftSidebar", "ExpandAllGroups"])
      app.commands.runCommand("dev.perfetto." + command);
    app.trace.selection.selectSqlEvent("slice", id, {switchToCurrentSelectionTab: false});
    app.trace.timeline.setViewportTime(BigInt(begin - width), BigInt(begin + 2 * width));"""
EXPRESSION = '{__name__=~"mpicoloc_job_(slowdown|slowdown_low|slowdown_high|mpi_time_ratio|price_fair_su)"}'


def perfetto(trace, out):
    """The call that waited longest for its senders, and what came before and after."""
    with perfetto_ui.opened(trace, width=1000, height=760) as page:
        ((mark, begin_ns, width_ns),) = perfetto_ui.query(page, LATE, id=0, ts=0, dur=0)
        page.execute_script(SHOW, mark, begin_ns, width_ns)
        time.sleep(5)
        page.save_screenshot(out)


def prometheus(address, out):
    """Some facts of all jobs."""
    words = urllib.parse.urlencode({"g0.expr": EXPRESSION, "g0.tab": 1})
    with perfetto_ui.browser(width=1000, height=800) as page:
        page.get(f"{address}/graph?{words}")
        time.sleep(5)
        page.save_screenshot(out)


if __name__ == "__main__":
    {"perfetto": perfetto, "prometheus": prometheus}[sys.argv[1]](*sys.argv[2:])
