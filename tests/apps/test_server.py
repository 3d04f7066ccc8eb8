"""The explorer's server: its own page is answered, and nothing else; it asks nobody else anything.

The server runs a small page of its own, in a folder whose Streamlit settings would open it to all.
"""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path

import pytest

from apps.catalogue import check_name
from apps.guard import HEADERS, Guard
from apps.serve import PAGE, choose_port, settings
from interp.errors import ModelLoadError, OutOfResources

MODELS = ("induction-by-hand", "dates")
WATCHED = """
import sys
record = open({record!r}, "a", buffering=1)
def refuse(event, args):
    if event in {{"socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname"}}:
        print(event, args, file=record)
        raise OSError("no connection is opened in this test")
sys.addaudithook(refuse)
"""
"""Records and refuses every connection that a process opens, and every look-up of a name."""
SCRIPT = """
import sys
import streamlit as st

JAVASCRIPT = '''
export default function({ parentElement, setTriggerValue }) {
  const canvas = document.createElement("canvas");
  canvas.className = "picked";
  canvas.onclick = () => setTriggerValue("picked", "cell");
  canvas.toBlob(blob => {
    const picture = document.createElement("img");
    picture.src = URL.createObjectURL(blob);
    picture.onload = () => parentElement.append(canvas);
    parentElement.append(picture);
  });
}
'''
component = st.components.v2.component("canvas", js=JAVASCRIPT)
picked = component(key="canvas", on_picked_change=lambda: None).picked
st.markdown(f"{picked} of {' '.join(sys.argv[1:])} :material/home: $x^2$")
st.dataframe({"a": [1]})
"""
OPEN_TO_ALL = """
[server]
address = "0.0.0.0"
baseUrlPath = "elsewhere"
allowedHosts = ["*"]
corsAllowedOrigins = ["http://evil.example"]
enableCORS = false
enableAgentApi = true
[browser]
gatherUsageStats = true
"""
STATIC = f"/{PAGE.with_name('favicon.png').name}"
PATHS = ("/", "/_stcore/health", "/_stcore/host-config", STATIC)
UPGRADE = (
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version: 13",
)


@dataclass
class Server:
    """A server that runs, and the file of the connections that it opened."""

    process: "subprocess.Popen[bytes]"
    port: int
    record: Path
    log: Path

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def wait(self) -> None:
        """Wait until it answers."""
        for _ in range(600):
            assert self.process.poll() is None, self.log.read_text()
            try:
                assert self.status("/_stcore/health", self.host) == 200
            except ConnectionError:
                time.sleep(0.1)
            else:
                return
        pytest.fail("the server did not come up")

    def send(self, request: str, *headers: str) -> tuple[HTTPResponse, socket.socket]:
        """Send a request; its answer, and the connection."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        connection.sendall("\r\n".join([request, *headers, "", ""]).encode())
        answer = HTTPResponse(connection)
        answer.begin()
        return answer, connection

    def ask(self, request: str, *headers: str) -> HTTPResponse:
        """The answer to a request."""
        answer, connection = self.send(f"{request} HTTP/1.1", *headers)
        connection.close()
        return answer

    def status(self, path: str, host: str, *headers: str) -> int:
        """The status of the answer to a request by GET."""
        return self.ask(f"GET {path}", f"Host: {host}", *headers).status

    def handshake(self, host: str, *origins: str, path: str = "/_stcore/stream") -> int:
        """The status of the answer to the handshake of a WebSocket."""
        lines = [f"Host: {host}", *UPGRADE, *(f"Origin: {origin}" for origin in origins)]
        return self.ask(f"GET {path}", *lines).status


@contextmanager
def running(folder: Path, *options: str, path: str = os.environ["PATH"]) -> Iterator[Server]:
    """A server that was started in a folder; it is ended if it still runs afterwards."""
    (folder / ".streamlit").mkdir()
    (folder / ".streamlit" / "config.toml").write_text(OPEN_TO_ALL)
    (folder / "page.py").write_text(SCRIPT)
    record, log, port = folder / "record", folder / "log", choose_port(0)
    code = WATCHED.format(record=str(record)) + (
        "from pathlib import Path; import threading, time, apps.serve, apps.cli\n"
        # As a sweep that is still running when the server ends.
        "threading.Thread(target=time.sleep, args=[3600]).start()\n"
        f"apps.serve.APP = Path({str(folder / 'page.py')!r}); apps.cli.main()"
    )
    models = [word for model in MODELS for word in ("--model", model)]
    command = [sys.executable, "-c", code, "explore", *models, "--port", str(port), *options]
    env = {**os.environ, "PATH": path}
    with (
        log.open("w") as output,
        subprocess.Popen(command, cwd=folder, stdout=output, stderr=output, env=env) as process,
    ):
        server = Server(process, port, record, log)
        try:
            server.wait()
            yield server
        finally:
            process.kill()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("server"), "--headless") as server:
        yield server
        server.process.terminate()
        assert server.process.wait(timeout=60) == 0
    assert not server.record.read_text(), "a connection was opened"


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "LocalHost"])
@pytest.mark.parametrize("path", PATHS)
def test_the_own_host_is_answered(server, name, path):
    assert server.status(path, f"{name}:{server.port}") == 200


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:{port}", "127.0.0.1.evil.example:{port}", "", "*"),
        *("127.0.0.1", "localhost", "127.0.0.1:1", "0.0.0.0:{port}", "[::1]:{port}"),
        *("me@127.0.0.1:{port}", "127.0.0.1:{port}/", "127.0.0.1:{port}, evil.example"),
    ],
)
def test_a_foreign_host_is_refused(server, host):
    for path in (*PATHS, "/_stcore/metrics"):
        assert server.status(path, host.format(port=server.port)) == 403


def test_a_missing_or_a_second_host_is_refused(server):
    assert server.ask("GET /").status == 400
    assert server.ask("GET /", f"Host: {server.host}", "Host: evil.example").status == 400
    for path in PATHS:
        answer, connection = server.send(f"GET {path} HTTP/1.0")
        connection.close()
        assert answer.status == 403


def test_only_one_address_is_bound(server):
    """Every address of 127.0.0.0/8 is this machine; only one of them is answered."""
    socket.create_connection(("127.0.0.1", server.port)).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", server.port))


def test_requests_of_foreign_pages_are_refused(server):
    for path in PATHS:
        assert server.status(path, server.host, f"Origin: http://{server.host}") == 200
        for origin in ("http://evil.example", "http://127.0.0.1:1", "null"):
            assert server.status(path, server.host, f"Origin: {origin}") == 403


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_the_websocket_accepts_its_own_origin(server, name):
    host = f"{name}:{server.port}"
    assert server.handshake(host, f"http://{host}") == 101


def test_a_text_frame_closes_the_websocket_and_prints_nothing(server):
    """Streamlit's messages are bytes; it raises an error at a text."""
    before = server.log.read_text()
    answer, connection = server.send(
        "GET /_stcore/stream HTTP/1.1",
        *(f"Host: {server.host}", f"Origin: http://{server.host}", *UPGRADE),
    )
    assert answer.status == 101
    # A masked frame, as a client sends it: final, text, two bytes.
    connection.sendall(bytes([0x81, 0x82, 0, 0, 0, 0]) + b"hi")
    closing = bytes([0x88, 2]) + (1003).to_bytes(2, "big")
    received = b""
    while not received.endswith(closing) and (part := connection.recv(4096)):
        received += part
    connection.close()
    assert received.endswith(closing)
    assert server.status("/", server.host) == 200
    assert server.log.read_text() == before


@pytest.mark.parametrize(
    "origins",
    [
        (),
        *[("http://127.0.0.1:1",), ("http://127.0.0.1",), ("http://localhost:{port}",)],
        *[("https://127.0.0.1:{port}",), ("http://evil.example",), ("null",), ("",)],
        ("http://127.0.0.1:{port}/",),
    ],
)
def test_the_websocket_refuses_any_other_origin(server, origins):
    foreign = [origin.format(port=server.port) for origin in origins]
    assert server.handshake(server.host, *foreign) == 403


def test_the_websocket_refuses_a_second_origin(server):
    own_origin = f"http://{server.host}"
    assert server.handshake(server.host, own_origin, "http://evil.example") == 400


def test_the_websocket_refuses_a_foreign_host(server):
    for host in ("evil.example", f"evil.example:{server.port}", "127.0.0.1:1"):
        assert server.handshake(host, f"http://{host}") == 403


def test_there_is_one_websocket(server):
    assert server.handshake(server.host, f"http://{server.host}", path="/elsewhere") == 403


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET /_stcore/metrics", 404),
        ("GET /%5Fstcore/metrics", 404),
        ("GET //_stcore/metrics", 400),
        ("GET /_stcore/agent/openapi.json", 404),
        ("GET /_stcore/upload_file/a/b", 404),
        ("GET /_stcore/bidi-components/a", 404),
        ("GET /auth/login", 404),
        ("GET /oauth2callback", 404),
        ("PUT /_stcore/upload_file/a/b", 405),
        ("OPTIONS /_stcore/upload_file/a/b", 405),
        ("POST /_stcore/agent/interact", 405),
        ("POST /", 405),
        ("HEAD /", 200),
        ("GET /heads", 200),
    ],
)
def test_only_what_the_page_needs_is_answered(server, request_line, status):
    assert server.ask(request_line, f"Host: {server.host}").status == status


@pytest.mark.parametrize(
    ("request_line", "host", "status"),
    [
        *[(f"GET {path}", "127.0.0.1:{port}", 200) for path in PATHS],
        ("GET /", "evil.example", 403),
        ("GET /_stcore/metrics", "127.0.0.1:{port}", 404),
        ("POST /", "127.0.0.1:{port}", 405),
        ("GET /static/../../etc/passwd", "127.0.0.1:{port}", 400),
    ],
)
def test_every_answer_has_the_headers(server, request_line, host, status):
    answer = server.ask(request_line, f"Host: {host.format(port=server.port)}")
    assert answer.status == status
    for name, value in HEADERS.items():
        assert answer.headers.get_all(name) == [value]
    policy = answer.headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in policy
    assert "default-src 'none'" in policy
    assert "http" not in policy
    assert "unsafe-eval" not in policy
    assert answer.headers["Access-Control-Allow-Origin"] is None


def answer_of(port: int, host: str) -> dict[str, object]:
    """The answer of an application that fails, behind a guard."""

    async def fails(scope, receive, send):
        await send({"type": "http.response.start", "status": 500, "headers": []})

    async def receive():
        return {"type": "http.request"}

    async def send(message):
        sent.append(message)

    sent = []
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", host.encode())]}
    # In a thread of its own: a browser of other tests keeps an event loop in this one.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, Guard(fails, port, "")(scope, receive, send)).result()
    return sent[0]


def test_the_headers_are_on_the_answer_to_an_error_too():
    answer = answer_of(8501, "127.0.0.1:8501")
    assert answer["status"] == 500
    assert (b"x-frame-options", b"DENY") in answer["headers"]


def test_the_port_of_http_is_not_written():
    assert [answer_of(80, host)["status"] for host in ("localhost", "localhost:80")] == [500, 403]
    assert [answer_of(81, host)["status"] for host in ("localhost", "localhost:81")] == [403, 500]


def test_refusals_open_no_connection(server):
    """Streamlit's own check of an Origin asks an outside service for the address of the machine."""
    for origin in ("http://evil.example", "http://127.0.0.1:1", "null"):
        assert server.handshake(server.host, origin) == 403
    for host in ("evil.example", f"evil.example:{server.port}"):
        assert server.handshake(host, f"http://{host}") == 403
        assert server.status("/", host) == 403
    assert not server.record.read_text()


def test_the_check_of_streamlit_would_open_one(tmp_path):
    record = tmp_path / "record"
    code = WATCHED.format(record=str(record)) + (
        "from streamlit.web.server.server_util import is_url_from_allowed_origins as check\n"
        "assert not check('http://evil.example')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)
    assert "checkip.amazonaws.com" in record.read_text()


@pytest.mark.browser
def test_a_page_and_a_component_work_under_the_policy(server, chromium):
    page = chromium.new_page()
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(f"http://{server.host}")
    page.locator("canvas.picked").click(timeout=60_000)
    page.get_by_text("cell of --model=induction-by-hand --model=dates").wait_for(timeout=60_000)
    page.locator("[data-testid=stDataFrame] canvas").first.wait_for(timeout=60_000)
    assert complaints == []
    own_addresses = (f"http://{server.host}/", f"blob:http://{server.host}/", "data:")
    assert [url for url in requests if not url.startswith(own_addresses)] == []
    assert not server.record.read_text()
    page.close()


@contextmanager
def other_server(folder: Path) -> Iterator[str]:
    """The address of a server of the files of a folder."""
    command = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1"]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            yield re.search(r"http://[\w.:]+", process.stdout.readline())[0]
        finally:
            process.kill()


@pytest.mark.browser
def test_a_page_of_another_port_reaches_nothing(server, chromium, tmp_path):
    """Not by a WebSocket, nor by a picture, nor in a frame."""
    connect = """address => new Promise(done => {
        const stream = new WebSocket(address);
        stream.onopen = () => done("open");
        stream.onerror = () => done("refused");
    })"""
    show = """address => new Promise(done => {
        const picture = new Image();
        picture.onload = () => done("open");
        picture.onerror = () => done("refused");
        picture.src = address;
    })"""
    (tmp_path / "index.html").write_text(f"<iframe src='http://{server.host}'></iframe>")
    page, own_origin = chromium.new_page(), f"http://{server.host}"
    with other_server(tmp_path) as other:
        for address, expected in ((own_origin, "open"), (other, "refused")):
            page.goto(address)
            assert page.evaluate(connect, f"ws://{server.host}/_stcore/stream") == expected
            assert page.evaluate(show, f"http://{server.host}{STATIC}") == expected
        assert page.frames[1].url == "chrome-error://chromewebdata/"
    page.close()


@pytest.mark.slow
def test_ctrl_c_ends_the_server_with_a_page_open_and_work_going_on(tmp_path):
    """The page opens in the machine's browser, whose place another command takes here."""
    opened = tmp_path / "opened"
    browser = tmp_path / "bin" / "xdg-open"
    browser.parent.mkdir()
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > part && mv part {opened}\n')
    browser.chmod(0o755)
    with running(tmp_path, path=f"{browser.parent}{os.pathsep}{os.environ['PATH']}") as server:
        answer, connection = server.send(
            "GET /_stcore/stream HTTP/1.1",
            *(f"Host: {server.host}", f"Origin: http://{server.host}", *UPGRADE),
        )
        assert answer.status == 101
        while not opened.exists():
            time.sleep(0.05)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(timeout=60) == 0
        connection.close()
    assert opened.read_text() == f"http://{server.host}"
    assert server.log.read_text().splitlines() == [
        f"The explorer is at http://{server.host} (Ctrl-C stops it)."
    ]
    assert not server.record.read_text()


def test_the_settings_are_for_this_machine_alone():
    options = settings(8501)
    assert options["server.address"] == "127.0.0.1"
    assert options["browser.gatherUsageStats"] is False
    assert options["client.showErrorDetails"] == "none"
    assert options["server.fileWatcherType"] == "none"


def test_a_port_in_use_is_refused_or_passed_over():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OutOfResources, match=str(port)):
            choose_port(port)
    assert choose_port(0) > 0


def test_models_are_named_as_for_loading(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").touch()
    for name in (*MODELS, str(tmp_path / "model"), "hub:gpt2", "hub:org/name@main"):
        check_name(name)
    for name in ("no-such-model", str(tmp_path), "../../etc", "hub:../x", "hub:", "a" * 5000, "\0"):
        with pytest.raises(ModelLoadError):
            check_name(name)
