"""Chromium, and a page that looks at `page.html` beside it as a phone and a desk show it."""

import re
import shutil
import subprocess

CHROMIUM = shutil.which("chromium")
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


def looked(folder, file, *flags):
    """Standard output and what the console said."""
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
               "--allow-file-access-from-files", "--enable-logging=stderr", "--v=0", "--dump-dom",
               f"--user-data-dir={folder / 'user'}", *flags, (folder / file).as_uri()]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    return done.stdout, re.findall(r".*CONSOLE.*", done.stderr)
