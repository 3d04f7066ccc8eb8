"""The explorer in a browser: the command in its own process, its pages in Chromium.

This module is used by the browser tests, the timings and the screenshots. Requests to other
machines are recorded, and fail: no other name or address is resolved.
"""

import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal
from urllib.parse import urlencode

from playwright.sync_api import Browser, Page, Request, sync_playwright

from apps.serve import HOST, choose_port

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
STARTS_WITHIN = 120
"""Seconds until the server must answer."""
OFFLINE = f"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE {HOST}"
"""A switch of Chromium; intercepting each request in Python would slow every page."""
LAUNCHED: Any = {"executable_path": CHROMIUM, "args": ["--no-sandbox", OFFLINE]}
SETTLED = "[data-testid=stApp][data-test-script-state=notRunning]"
DRAWN = "[data-view][data-ready=true]"
APPEARS = """([selector, text]) => {
  const hosts = document.querySelectorAll("[data-testid=stBidiComponentIsolated]");
  const roots = [document, ...[...hosts].map((host) => host.shadowRoot ?? host)];
  return roots.some((root) => [...root.querySelectorAll(selector)].some(
    (element) => element.textContent.includes(text)));
}"""
"""Whether an element with a text exists, in the document or in a component's shadow root. It is
tried at each frame, where a selector of Playwright is tried twice a second."""
UNFINISHED = "[data-stale=true], [data-testid=stSkeleton]"
"""What is of an earlier run, and what stands where code of Streamlit is still being loaded."""
IDLE = f"""() => document.querySelector("{SETTLED}") && !document.querySelector("{UNFINISHED}")"""
TIMEOUT = 120_000
"""Longest wait, in milliseconds."""
LAST = 3000
"""Characters of a page, and of the server's log, in the message of an error."""
QUIET = 500
"""Milliseconds for which a page must be idle."""
FINISHED = f"""() => {{
  const cancels = [...document.querySelectorAll("button")].some(
    (button) => button.textContent.trim() === "Cancel");
  if (cancels || !({IDLE})()) window.idleSince = null;
  else window.idleSince ??= performance.now();
  return window.idleSince !== null && performance.now() - window.idleSince >= {QUIET};
}}"""
"""Whether the page has been idle, without a job, at each frame for long enough."""


@dataclass(frozen=True)
class Served:
    """A running explorer.

    Attributes:
        url: the address of its page.
        process: the process of the command.
        log: the file of its output.
    """

    url: str
    process: "subprocess.Popen[bytes]"
    log: Path

    def address(self, **fields: object) -> str:
        """The address of a view."""
        return f"{self.url}/?{urlencode(fields)}" if fields else self.url


@dataclass
class Visit:
    """A page of the explorer in the browser.

    Attributes:
        page: the page of Playwright.
        outside: addresses on other machines that the page requested, without success.
        complaints: errors of the page and of its console.
        received: bytes received in WebSocket frames.
    """

    page: Page
    outside: list[str] = field(default_factory=list[str])
    complaints: list[str] = field(default_factory=list[str])
    received: int = 0

    def open(self, url: str) -> None:
        """Go to an address and wait until its views are drawn."""
        self.page.goto(url)
        self.wait_for(DRAWN)
        self.settle()

    def wait_for(self, selector: str, text: str = "") -> None:
        """Wait until an element that contains a text exists."""
        self.page.wait_for_function(APPEARS, arg=[selector, text], timeout=TIMEOUT)

    def settle(self) -> None:
        """Wait until the script has ended and nothing on the page is stale or a placeholder."""
        self.page.wait_for_function(IDLE, timeout=TIMEOUT)

    def finish(self) -> None:
        """Wait until no job is running for some time, since none is visible between two runs."""
        self.page.evaluate("window.idleSince = null")
        self.page.wait_for_function(FINISHED, timeout=TIMEOUT)

    def view(self, name: str) -> Any:  # noqa: ANN401 - a locator
        """The element of a drawn view, by its id."""
        return self.page.locator(f"[data-view='{name}'][data-ready=true]")


@contextmanager
def served(*models: str, folder: Path | None = None) -> Generator[Served]:
    """Run the explorer on a free port until the end of the block.

    Args:
        models: the models named on the command line.
        folder: its working directory, in which its log is written; by default a temporary one.
    """
    with TemporaryDirectory() as temporary:
        where = folder or Path(temporary)
        port = choose_port(0)
        words = [word for name in models for word in ("--model", name)]
        code = "from apps.cli import main; main()"
        command = [sys.executable, "-c", code, "explore", *words, "--port", str(port), "--headless"]
        log = where / "explorer.log"
        with log.open("w") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, cwd=where)
        try:
            url = f"http://{HOST}:{port}"
            _wait_for(f"{url}/_stcore/health", process, log)
            yield Served(url, process, log)
        finally:
            process.terminate()
            process.wait(timeout=30)


@contextmanager
def chromium() -> Generator[Browser]:
    """Run a browser until the end of the block."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**LAUNCHED)
        yield browser
        browser.close()


@contextmanager
def visit(
    browser: Browser,
    server: Served,
    viewport: tuple[int, int] = (1280, 800),
    color_scheme: Literal["light", "dark"] = "light",
) -> Generator[Visit]:
    """Open a page with its own cookies, storage and history.

    Args:
        browser: the browser.
        server: the only server to which requests are expected.
        viewport: width and height of the window, in pixels.
        color_scheme: what the visitor prefers.
    """
    with _empty_page(browser, server) as page:
        page.set_default_timeout(TIMEOUT)
        page.set_viewport_size({"width": viewport[0], "height": viewport[1]})
        page.emulate_media(color_scheme=color_scheme)
        visited = Visit(page)

        def ask(request: Request) -> None:
            if not request.url.startswith((server.url, "data:", "blob:")):
                visited.outside.append(request.url)

        def note(text: str) -> None:
            visited.complaints.append(text)

        def count(payload: str | bytes) -> None:
            visited.received += len(payload)

        page.on("request", ask)
        page.on("pageerror", lambda error: note(str(error)))
        page.on("console", lambda line: note(line.text) if line.type == "error" else None)
        page.on("websocket", lambda socket: socket.on("framereceived", count))
        try:
            yield visited
        except Exception as error:
            error.add_note(described(page, server))
            raise


@contextmanager
def _empty_page(browser: Browser, server: Served) -> Generator[Page]:
    """A page without stored data of the server: in the browser's profile, if that is free."""
    profile = next((context for context in browser.contexts if not context.pages), None)
    context = profile or browser.new_context()
    page = context.new_page()
    if profile is not None:
        kinds = {"origin": server.url, "storageTypes": "cookies,local_storage,indexeddb"}
        profile.new_cdp_session(page).send("Storage.clearDataForOrigin", kinds)
    try:
        yield page
    finally:
        (context if profile is None else page).close()


def described(page: Page, server: Served) -> str:
    """The text and views of a page and the end of its server's log, for the message of an error."""
    text, log = page.inner_text("body")[:LAST], server.log.read_text()[-LAST:]
    views = page.locator("[data-view]").evaluate_all(
        "views => views.map(({dataset}) => dataset.view + (dataset.ready ? '' : ' (not drawn)'))"
    )
    return (
        f"The page {page.url} showed:\n{text}\nIts views: {', '.join(views)}\n"
        f"The server's log:\n{log}"
    )


def _wait_for(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + STARTS_WITHIN
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.read() == b"ok":
                    return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"The explorer did not start:\n{log.read_text()}")
