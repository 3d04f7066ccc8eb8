"""Protects the explorer's server: it answers the requests of its own page, and no others.

Any web page can send requests to a server on the loopback interface. A foreign Host header means
that the domain of another page was made to resolve to this machine (DNS rebinding); a foreign
Origin means a page of another site or port. Both are refused before they reach Streamlit, whose own
check of the Origin asks an external service for the address of this machine.

Reference: https://fetch.spec.whatwg.org/#origin-header, https://www.w3.org/TR/CSP3/
"""

import base64
import hashlib
import re
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

NAMES = ("127.0.0.1", "localhost")
DEFAULT_PORT = 80
"""The port of http, which a browser leaves out of Host and Origin."""
POLICY_VIOLATION = 1008
"""The code with which a WebSocket is closed; before it is accepted, the server answers 403."""
UNSUPPORTED_DATA = 1003
"""The code with which a WebSocket is closed after a text frame."""
METHODS = frozenset({"GET", "HEAD"})
INTERNAL, STREAM = "/_stcore", "/_stcore/stream"
ANSWERED = frozenset({f"{INTERNAL}/health", f"{INTERNAL}/host-config"})
"""Streamlit's internal paths that are answered; uploads, metrics and its API are not."""
SIGN_IN = ("/auth/", "/oauth2callback")
"""Paths that would contact an identity provider."""
HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
POLICY = {
    "default-src": "'none'",
    # The JavaScript of a component is a blob that the page imports.
    "script-src": "'self' blob:",
    # Streamlit's styles, and those of its charts, are set by scripts.
    "style-src": "'self' 'unsafe-inline'",
    "img-src": "'self' data: blob:",
    "font-src": "'self' data:",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}


class Guard:
    """An ASGI application that refuses foreign requests and adds headers to every response.

    Args:
        app: the application that answers all other requests.
        port: the port of the server.
        page: the HTML of the page, whose inline scripts are allowed to run.
    """

    def __init__(self, app: ASGIApp, port: int, page: str) -> None:
        self._app = app
        self._hosts = frozenset(
            name if port == DEFAULT_PORT else f"{name}:{port}" for name in NAMES
        )
        self._headers = {**HEADERS, "Content-Security-Policy": content_security_policy(page)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or refuse a request."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._headers)
            await send(message)

        async def receive_bytes() -> Message:
            message = await receive()
            # Streamlit's messages are bytes. It would raise an error at a text; here the connection
            # ends as if the browser had closed it.
            if message["type"] == "websocket.receive" and message.get("bytes") is None:
                await send({"type": "websocket.close", "code": UNSUPPORTED_DATA})
                return {"type": "websocket.disconnect", "code": UNSUPPORTED_DATA}
            return message

        status = self._status(scope)
        if status is None:
            is_socket = scope["type"] == "websocket"
            await self._app(scope, receive_bytes if is_socket else receive, send_with_headers)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
        else:
            await PlainTextResponse(status.phrase, status)(scope, receive, send_with_headers)

    def _status(self, scope: Scope) -> HTTPStatus | None:
        """The status with which a request is refused; ``None`` if it is answered."""
        headers, path = Headers(scope=scope), scope["path"]
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return HTTPStatus.FORBIDDEN
        expected = [f"http://{hosts[0].lower()}"]
        if scope["type"] == "websocket":
            # A browser sends an Origin with every handshake, so a missing one is refused too.
            answered = origins == expected and path == STREAM
            return None if answered else HTTPStatus.FORBIDDEN
        if origins not in ([], expected):
            return HTTPStatus.FORBIDDEN
        if scope["method"] not in METHODS:
            return HTTPStatus.METHOD_NOT_ALLOWED
        return None if _is_answered(path) else HTTPStatus.NOT_FOUND


def content_security_policy(page: str) -> str:
    """A policy under which a page loads only from its own server and runs its inline scripts."""
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()) for script in scripts]
    hashes = "".join(f" 'sha256-{digest.decode()}'" for digest in digests)
    policy = {**POLICY, "script-src": POLICY["script-src"] + hashes}
    return "; ".join(f"{name} {sources}" for name, sources in policy.items())


def _is_answered(path: str) -> bool:
    """Whether a path is one that the page needs."""
    return path in ANSWERED or not path.startswith((INTERNAL, *SIGN_IN))
