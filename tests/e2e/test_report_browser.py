"""The page of `mpicoloc report` in a real browser: no error, nothing runs, nothing sticks out on a phone."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
import sample

from mpicoloc.core.profile import Network, NetworkLevel
from mpicoloc.core.tables import table
from mpicoloc.report import page
from mpicoloc.report.figures import profile

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(CHROMIUM is None, reason="not installed: chromium, the browser"),
]
HOSTILE = "</title><script>top.hacked = 1</script><img src=x onerror='top.hacked = 1'>" + "x" * 400
LOOK = """<!doctype html>
<iframe id="phone" src="page.html" style="width: 390px; height: 844px"></iframe>
<iframe id="desk" src="page.html" style="width: 1300px; height: 900px"></iframe>
<pre></pre><script>
onload = () => {
  const found = {hacked: window.hacked === 1, dark: matchMedia("(prefers-color-scheme: dark)").matches};
  for (const frame of document.querySelectorAll("iframe")) {
    const inner = frame.contentDocument, body = getComputedStyle(inner.body);
    for (const more of inner.querySelectorAll("details")) more.open = true;
    const [ink, paper] = [body.color, body.backgroundColor].map(word => +word.match(/\\d+/)[0]);
    const plain = inner.querySelector("svg text");
    found[frame.id] = {
      width: inner.documentElement.clientWidth, needs: inner.documentElement.scrollWidth,
      pictures: inner.querySelectorAll("svg[role=img]").length, ink: ink, paper: paper,
      letters: getComputedStyle(plain).fill,
      plot: inner.querySelector("figure").getBoundingClientRect().top,
      table: inner.querySelector("table.facts").getBoundingClientRect().top,
      high: inner.querySelector("figure svg").clientHeight,
      cut: [...inner.querySelectorAll("figure svg")].filter(picture => {
        const box = picture.getBoundingClientRect();
        return [...picture.querySelectorAll("text")].some(word => {
          const own = word.getBoundingClientRect();
          return own.left < box.left - 2 || own.right > box.right + 2 || own.bottom > box.bottom + 2;
        });
      }).map(picture => picture.getAttribute("aria-labelledby")),
    };
  }
  document.querySelector("pre").textContent = JSON.stringify(found);
};
</script>"""


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
    text = page.page(full, profile.figures(full))
    assert text.count("<svg") == 13
    (folder / "page.html").write_text(text)
    (folder / "look.html").write_text(LOOK)
    return folder


def looked(folder, file, *flags):
    """Standard output and what the console said."""
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
               "--allow-file-access-from-files", "--enable-logging=stderr", "--v=0", "--dump-dom",
               f"--user-data-dir={folder / 'user'}", *flags, (folder / file).as_uri()]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    return done.stdout, re.findall(r".*CONSOLE.*", done.stderr)


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_in_a_browser(folder, dark):
    out, console = looked(folder, "look.html", f"--blink-settings=preferredColorScheme={0 if dark else 1}")
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
    """What the test above does not find, it would find."""
    (folder / "bad.html").write_text("<script>console.error('heard'); nothing.at.all</script>")
    _, console = looked(folder, "bad.html")
    assert len(console) == 2 and "heard" in console[0]
