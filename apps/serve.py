"""Serves the explorer with Streamlit, on the loopback interface only."""

import socket
from pathlib import Path

from streamlit.web import cli

from interp.errors import OutOfResources

HOST = "127.0.0.1"
PORTS = range(8501, 8521)
APP = Path(__file__).parent / "explorer_script.py"


def flags(port: int, *, headless: bool) -> list[str]:
    """Streamlit's flags: its defaults bind all interfaces and show internals to visitors."""
    settings: dict[str, str | float | list[str]] = {
        "server.address": HOST,
        "server.port": port,
        "server.headless": headless,
        # Refuses other host names, so that DNS rebinding can't reach the explorer.
        "server.allowedHosts": [HOST, "localhost"],
        "server.enableCORS": True,
        "server.enableXsrfProtection": True,
        "server.enableStaticServing": False,
        "server.enableAgentApi": False,
        "server.fileWatcherType": "none",
        "server.maxUploadSize": 1,
        "server.showEmailPrompt": False,
        "browser.serverAddress": HOST,
        "browser.gatherUsageStats": False,
        "client.showErrorDetails": "none",
        "client.showErrorLinks": False,
        "client.toolbarMode": "minimal",
        "global.developmentMode": False,
        "logger.level": "warning",
        "logger.hideWelcomeMessage": True,
        "theme.base": "light",
        "theme.primaryColor": "#542788",
        "theme.paddingTop": "3rem",
    }
    return [f"--{name}={text}" for name, value in settings.items() for text in _flag_values(value)]


def choose_port(wanted: int | None) -> int:
    """``wanted`` if it is free; without it, the first free port of :data:`PORTS`.

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


def serve(model: str, port: int, *, headless: bool) -> None:
    """Serve the explorer until interrupted."""
    arguments = ["run", *flags(port, headless=headless), str(APP), "--", "--model", model]
    cli.main(arguments, standalone_mode=False)


def _flag_values(value: str | float | list[str]) -> list[str]:
    """The values of a flag, which is repeated for a list."""
    if isinstance(value, list):
        return value
    return [str(value).lower() if isinstance(value, bool) else str(value)]
