"""The main function of a worker that is a process."""

import os
import pickle
import queue
import socket
import threading
from multiprocessing.connection import Connection
from typing import Any

from interp.executors.transfer import mapped
from interp.executors.worker_server import WorkerServer

ORPHANED = 5.0
"""Seconds between two looks at whether the driver still exists."""


def main(fd: int, number: int, threads: int, device: str) -> None:
    """Answer the requests of the driver, in order, until it closes the connection.

    Args:
        fd: the socket.
        number: number of the worker.
        threads: threads of PyTorch.
        device: the device to compute on.
    """
    connection = Connection(fd)
    requests: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
    worker_server = WorkerServer(number, threads, device)
    threading.Thread(target=_read, args=(connection, requests), daemon=True).start()
    reply: tuple[str, object] = "hello", worker_server.facts()
    while True:
        try:
            connection.send_bytes(pickle.dumps(reply))
        except OSError:  # the driver is gone
            os._exit(0)
        name, *args = requests.get()
        reply = _answer(worker_server, name, args)


def _answer(worker_server: WorkerServer, name: str, args: list[Any]) -> tuple[str, object]:
    """The answer to a request."""
    if name == "run":
        return "done", worker_server.run(*args)
    if name == "load_from":
        return "loaded", worker_server.load_from(*args)
    settings, skeleton, nbytes, file = args
    data = mapped(file, nbytes)
    os.close(file)
    return "loaded", worker_server.load(settings, skeleton, data)


def _read(connection: Connection, requests: "queue.SimpleQueue[tuple[Any, ...]]") -> None:
    """Read requests while others run, so that the driver never waits; end when it ends."""
    driver = os.getppid()
    try:
        while True:
            while not connection.poll(ORPHANED):
                if os.getppid() != driver:
                    os._exit(0)
            request = pickle.loads(connection.recv_bytes())
            if request[0] == "load":
                with socket.socket(fileno=os.dup(connection.fileno())) as ours:
                    request = (*request, socket.recv_fds(ours, 1, 1)[1][0])
            requests.put(request)
    except (EOFError, OSError):
        os._exit(0)
