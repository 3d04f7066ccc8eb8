"""Serves the explorer with Streamlit, on the loopback interface and only to its own page."""

import os
import socket
import sys
import threading
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import streamlit
import typer
from starlette.types import Receive, Scope, Send
from streamlit.starlette import App

from apps.guard import NAMES, Guard
from interp.errors import OutOfResources

HOST = "127.0.0.1"
PORTS = range(8501, 8521)
APP = Path(__file__).parent / "explorer_script.py"
PAGE = Path(streamlit.__file__).parent / "static" / "index.html"


def settings(port: int) -> dict[str, object]:
    """Streamlit's settings; they override its defaults and a user's ``config.toml``.

    The defaults listen on all interfaces and show internal errors to visitors.
    """
    return {
        "server.address": HOST,
        "server.port": port,
        "server.baseUrlPath": "",
        "server.sslCertFile": "",
        "server.sslKeyFile": "",
        # The browser is opened by Explorer.
        "server.headless": True,
        "server.allowedHosts": list(NAMES),
        "server.corsAllowedOrigins": [],
        "server.enableCORS": True,
        "server.enableXsrfProtection": True,
        "server.enableStaticServing": False,
        "server.enableAgentApi": False,
        "server.fileWatcherType": "none",
        "server.maxUploadSize": 1,
        "server.showEmailPrompt": False,
        "browser.serverAddress": HOST,
        "browser.gatherUsageStats": False,
        "client.allowedOrigins": [],
        "client.showErrorDetails": "none",
        "client.showErrorLinks": False,
        "client.toolbarMode": "minimal",
        "global.developmentMode": False,
        # The browser keeps large messages and lists them when it asks for a run. By default it
        # drops those that two runs did not use, perhaps while that run is on its way, and the page
        # then stops with "Cached ForwardMsg MISS".
        "global.maxCachedMessageAge": 50,
        # By default only messages of 10 kB or more are sent once.
        "global.minCachedMessageSize": 1000,
        "logger.level": "warning",
        "logger.hideWelcomeMessage": True,
        "secrets.files": [],
        "theme.light.primaryColor": "#542788",
        "theme.dark.primaryColor": "#b79cf0",
    }


class Explorer(App):
    """The explorer's page behind its guard.

    The guard wraps the whole application, including the error responses of Streamlit, which a
    middleware would not see.

    Args:
        port: the port of the server.
        headless: whether not to open a browser.
    """

    def __init__(self, port: int, *, headless: bool) -> None:
        @asynccontextmanager
        async def opening(_: App) -> AsyncGenerator[None, None]:
            if not headless:
                # In a thread, because a text-mode browser returns only when it is closed.
                url = f"http://{HOST}:{port}"
                threading.Thread(target=typer.launch, args=[url], daemon=True).start()
            yield

        super().__init__(APP, lifespan=opening)
        self._guard = Guard(super().__call__, port, PAGE.read_text(encoding="utf-8"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or refuse a request."""
        await self._guard(scope, receive, send)


def choose_port(wanted: int | None) -> int:
    """``wanted`` if it is free; if it is ``None``, the first free port of :data:`PORTS`.

    Raises:
        OutOfResources: the port is in use, or all of them are.
    """
    for port in PORTS if wanted is None else [wanted]:
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((HOST, port))
            except OSError:
                continue
            return int(trial.getsockname()[1])
    tried = f"Port {wanted} is" if wanted is not None else f"Ports {PORTS[0]} to {PORTS[-1]} are"
    raise OutOfResources(f"{tried} in use; choose another with --port, or 0 for any free one.")


def serve(
    models: Sequence[str],
    port: int,
    *,
    headless: bool,
    results: Sequence[Path] = (),
    dictionaries: Sequence[str] = (),
    memory: int | None = None,
) -> NoReturn:
    """Serve the explorer until interrupted, then end the process.

    Args:
        models: names of the models that the page offers besides the bundled ones, passed to its
            script as ``--model=NAME``.
        port: a free port.
        headless: whether not to open a browser.
        results: reports that the page opens, passed to its script as ``--results=PATH``.
        dictionaries: what the dictionaries are loaded from whose features are units of the page
            Graph, passed to its script as ``--dictionary=NAME``.
        memory: the budget of what is kept beside the models, in bytes; ``None`` takes a quarter of
            the free memory. It is passed to the script as ``--memory=BYTES``.
    """
    # Streamlit passes the arguments of this process to its script.
    sys.argv = [str(APP), *(f"--model={model}" for model in models)]
    sys.argv += [f"--results={path}" for path in results]
    sys.argv += [f"--dictionary={source}" for source in dictionaries]
    sys.argv += [] if memory is None else [f"--memory={memory}"]
    threading.Thread(target=_load_first, args=[models], daemon=True).start()
    with suppress(KeyboardInterrupt):
        Explorer(port, headless=headless).run(config=settings(port))
    # Sessions may still be computing. A normal exit would wait for the threads of a pool and end
    # the others, which aborts the process inside torch.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _load_first(models: Sequence[str]) -> None:
    """Import the modules of the page and load its model while the browser opens."""
    import_module("apps.explorer.navigation")
    offered = import_module("apps.explorer.offered")
    offered.offer([*models])
    # If the model can't be loaded, the page shows the error.
    with suppress(Exception):
        offered.model_of(offered.name_of(models[0]))
