"""The killable side of `pool`: one process, one call at a time, JSON in and out.

Standard library only. Frames are a four-byte length and UTF-8 JSON; nothing that
arrives is evaluated or unpickled. The first frame names a factory by
`module:function`; what it returns is called with the arguments of each later frame.

Every request carries an id, and every reply that of its request. A process that the
called code forked is not the worker: it loses the socket when it is born, and ends
where it would answer.
"""

import importlib
import json
import math
import os
import resource
import signal
import socket
from collections.abc import Callable
from typing import Any, NoReturn

from accredit.verification.confinement import Form, confine

MAX_FRAME_BYTES = 64 << 20
_HEADER_BYTES = 4
_ALARM_GRACE_S = 2

Call = Callable[..., Any]
"""Takes a milestone function, then the JSON arguments; returns a JSON value. What it
has to say of itself is its attribute `about`, a JSON object."""


def send_frame(connection: socket.socket, message: dict[str, Any]) -> None:
    """One JSON object; NaN and infinity are refused, lone surrogates are escaped."""
    payload = json.dumps(message, allow_nan=False).encode("ascii")
    connection.sendall(len(payload).to_bytes(_HEADER_BYTES, "big") + payload)


def take_frame(buffer: bytearray) -> dict[str, Any] | None:
    """The first JSON object of what has arrived, taken from it; None if incomplete.

    Raises:
        ValueError: The frame is longer than `MAX_FRAME_BYTES`, or not a JSON object.
    """
    if len(buffer) < _HEADER_BYTES:
        return None
    length = int.from_bytes(buffer[:_HEADER_BYTES], "big")
    if length > MAX_FRAME_BYTES:
        raise ValueError(f"a frame must have <= {MAX_FRAME_BYTES} bytes, got {length}")
    end = _HEADER_BYTES + length
    if len(buffer) < end:
        return None
    payload = bytes(buffer[_HEADER_BYTES:end])
    del buffer[:end]
    try:
        message = json.loads(payload)
    except RecursionError:
        raise ValueError("a frame must be nested less deeply") from None
    if not isinstance(message, dict):
        raise ValueError(f"a frame must hold a JSON object, got {type(message)}")
    return message


class _Channel:
    """The worker's end of the socket; of no use in any other process."""

    def __init__(self, descriptor: int) -> None:
        # A grandchild that held the socket would hide this process's death.
        os.set_inheritable(descriptor, False)
        self._connection = socket.socket(fileno=descriptor)
        self._process = os.getpid()
        self._unread = bytearray()
        os.register_at_fork(after_in_child=self._connection.close)

    def receive(self) -> dict[str, Any]:
        """The next request; EOFError where the trainer is gone."""
        while (message := take_frame(self._unread)) is None:
            piece = self._connection.recv(1 << 20)
            if not piece:
                raise EOFError("the other side closed the connection")
            self._unread += piece
        return message

    def reply(self, request: dict[str, Any], content: dict[str, Any]) -> None:
        """Answers a request, in the process that it was sent to."""
        if os.getpid() != self._process:
            os._exit(0)
        send_frame(self._connection, {"id": request["id"], **content})


def serve(descriptor: int, wanted: str = Form.PLAIN) -> NoReturn:
    """Answers calls on an inherited socket until the parent closes it."""
    granted = confine(Form(wanted), descriptor)
    channel = _Channel(descriptor)
    try:
        _answer_all(channel, granted)
    except (EOFError, OSError, ValueError):
        pass
    finally:
        # Neither threads nor exit handlers of the called code hold the process up.
        os._exit(0)


def _answer_all(channel: _Channel, granted: Form) -> None:
    setup = channel.receive()
    try:
        call = _started(setup)
    except BaseException as error:
        channel.reply(setup, {"error": type(error).__name__, "detail": _short(error)})
        return
    about = getattr(call, "about", {})
    channel.reply(setup, {"ready": True, "form": granted, "about": about})
    while True:
        request = channel.receive()
        channel.reply(request, _answered(channel, call, request))


def _started(setup: dict[str, Any]) -> Call:
    memory_bytes = setup["memory_bytes"]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    module, _, name = setup["factory"].partition(":")
    factory = getattr(importlib.import_module(module), name)
    return factory(*setup["arguments"])


def _answered(channel: _Channel, call: Call, request: dict[str, Any]) -> dict[str, Any]:
    # The kernel ends an orphan that no longer reaches its interpreter loop: SIGALRM's
    # default action needs no Python code to run.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(math.ceil(request["timeout_s"]) + _ALARM_GRACE_S)
    try:
        value = call(
            lambda name: channel.reply(request, {"milestone": name}),
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
