"""The page of `mpicoloc report` in a real browser: no error, nothing runs, nothing sticks out on a phone."""

import json
import re
from dataclasses import replace

import browser
import pytest
import sample

from mpicoloc.core.profile import Network, NetworkLevel, table
from mpicoloc.profile import figures, page

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(browser.CHROMIUM is None, reason="not installed: chromium, the browser"),
]
HOSTILE = "</title><script>top.hacked = 1</script><img src=x onerror='top.hacked = 1'>" + "x" * 400


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A page with every figure, whose words are hostile and long, and one that looks at it."""
    folder = tmp_path_factory.mktemp("page")
    made = sample.profile()
    events = {"rank": [0, 1], "t_ns": [10**9, 3 * 10**9], "duration_ns": [10**9] * 2, "bytes": [1000] * 2,
              "peer": [1, 0], "call": ["MPI_Send"] * 2}  # fmt: skip
    nodes, corunners = made.tables["nodes"].copy(), made.tables["corunners"].copy()
    nodes["hostname"] = corunners["job_id"] = HOSTILE.encode()[:64]
    levels = tuple(NetworkLevel(level, 1e9, 1e7, 1e9, 0.01) for level in range(3))
    tables = {**made.tables, "events": table("events", events), "nodes": nodes, "corunners": corunners}
    full = replace(made, tables=tables, job=sample.job(command=HOSTILE, id=HOSTILE), notes=(HOSTILE,),
                   network=Network("XGFT(3;4,4,4;1,2,2)", "low", "all", 3, levels))  # fmt: skip
    text = page.page(full, figures.figures(full))
    assert text.count("<svg") == 13
    (folder / "page.html").write_text(text)
    (folder / "look.html").write_text(browser.LOOK)
    return folder


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_in_a_browser(folder, dark):
    out, console = browser.looked(
        folder, "look.html", f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    )
    assert not console
    found = json.loads(re.search(r"<pre>(.*)</pre>", out)[1])
    assert not found["hacked"] and found["dark"] == dark
    for name, width in (("phone", 390), ("desk", 1300)):
        seen = found[name]
        assert width - 20 <= seen["width"] <= width and seen["needs"] <= seen["width"]
        assert seen["pictures"] == 13 and seen["high"] > 100 and seen["cut"] == []
        assert seen["plot"] < seen["table"], "first the plots"
        assert (seen["ink"] > 150) == (seen["paper"] < 100) == dark
        red = int(re.search(r"\d+", seen["letters"])[0])
        assert (red > 150) == dark, "figures follow"


def test_the_console_is_heard(folder):
    """The test above would see errors on the console."""
    (folder / "bad.html").write_text("<script>console.error('heard'); nothing.at.all</script>")
    _, console = browser.looked(folder, "bad.html")
    assert len(console) == 2 and "heard" in console[0]
