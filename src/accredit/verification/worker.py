"""The killable side of `pool`: one process, one call at a time, JSON in and out.

Standard library only. Frames are a four-byte length and UTF-8 JSON; nothing that
arrives is evaluated or unpickled. The first frame names a factory by
`module:function`; what it returns is called with the arguments of each later frame.
"""

import importlib
import json
import math
import os
import resource
import signal
import socket
from collections.abc import Callable
from typing import Any

MAX_FRAME_BYTES = 64 << 20
_ALARM_GRACE_S = 2

Call = Callable[..., Any]
"""Takes a milestone function, then the JSON arguments; returns a JSON value."""


def send_frame(connection: socket.socket, message: dict[str, Any]) -> None:
    """One JSON object; NaN and infinity are refused, lone surrogates are escaped."""
    payload = json.dumps(message, allow_nan=False).encode("ascii")
    connection.sendall(len(payload).to_bytes(4, "big") + payload)


def receive_frame(connection: socket.socket) -> dict[str, Any]:
    """The next JSON object.

    Raises:
        EOFError: The other side is gone.
        ValueError: The frame is longer than `MAX_FRAME_BYTES`, or not a JSON object.
    """
    length = int.from_bytes(_receive_exactly(connection, 4), "big")
    if length > MAX_FRAME_BYTES:
        raise ValueError(f"a frame must have <= {MAX_FRAME_BYTES} bytes, got {length}")
    message = json.loads(_receive_exactly(connection, length))
    if not isinstance(message, dict):
        raise ValueError(f"a frame must hold a JSON object, got {type(message)}")
    return message


def _receive_exactly(connection: socket.socket, length: int) -> bytes:
    payload = bytearray()
    while len(payload) < length:
        piece = connection.recv(min(length - len(payload), 1 << 20))
        if not piece:
            raise EOFError("the other side closed the connection")
        payload += piece
    return bytes(payload)


def serve(descriptor: int) -> None:
    """Answers calls on an inherited socket until the parent closes it."""
    # A grandchild that held the socket would hide this process's death.
    os.set_inheritable(descriptor, False)
    connection = socket.socket(fileno=descriptor)
    try:
        call = _started(receive_frame(connection))
    except BaseException as error:
        send_frame(connection, {"error": type(error).__name__, "detail": str(error)})
        return
    send_frame(connection, {"ready": True})
    while True:
        try:
            request = receive_frame(connection)
        except (EOFError, OSError):
            return
        send_frame(connection, _answered(connection, call, request))


def _started(setup: dict[str, Any]) -> Call:
    memory_bytes = setup["memory_bytes"]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    module, _, name = setup["factory"].partition(":")
    factory = getattr(importlib.import_module(module), name)
    return factory(*setup["arguments"])


def _answered(
    connection: socket.socket, call: Call, request: dict[str, Any]
) -> dict[str, Any]:
    # The kernel ends an orphan that no longer reaches its interpreter loop: SIGALRM's
    # default action needs no Python code to run.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(math.ceil(request["timeout_s"]) + _ALARM_GRACE_S)
    try:
        value = call(
            lambda name: send_frame(connection, {"milestone": name}),
            *request["arguments"],
        )
        # Serialised here, so that an unserialisable value is this call's error.
        return {"value": json.loads(json.dumps(value, allow_nan=False))}
    except BaseException as error:
        return {"error": type(error).__name__, "detail": _short(error)}
    finally:
        signal.alarm(0)


def _short(error: BaseException) -> str:
    try:
        return str(error)[:500]
    except Exception:
        return "no message"
