"""The server refuses requests of other sites, files, and every other request that the page itself
does not send.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# The page sends the values of its fields to this address, and nothing to any other.
QUEUE = "/gradio_api/queue/join"
LONGEST = 65_536  # bytes of a request; the page sends less than a thousand


class Guard:
    """An ASGI middleware that answers forbidden requests before it reads their bodies.

    Args:
        app: the application that answers the requests of the page.
    """

    def __init__(self, app: Callable[[Message, Receive, Send], Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if problem := refusal(scope):
                return await _answer(send, *problem)
            if scope["method"] == "POST":
                body = await _start_of_body(receive)
                if not _holds_plain_values(body):
                    return await _answer(
                        send,
                        422,
                        f"The values of the page's fields are plain JSON of at most {LONGEST:,} "
                        "bytes.",
                    )
                receive = _again(body, receive)
        await self.app(scope, receive, send)


def refusal(scope: Message) -> tuple[int, str] | None:
    """The status and sentence that answer a forbidden request, judged by its headers alone; None if
    the request is allowed.

    Example:
        >>> headers = [(b"host", b"localhost:7860")]
        >>> refusal({"method": "POST", "path": "/gradio_api/upload", "headers": headers})
        (403, 'This page takes no files: it accepts only the values of its fields.')
    """
    headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
    # Browsers send an origin with every request of another site that could change something.
    origin = headers.get(b"origin")
    if origin is not None and origin != f"http://{headers.get(b'host')}":
        return 403, f"This page takes no requests of other sites, such as {origin}."
    if scope["method"] not in ("GET", "HEAD") and (scope["method"], scope["path"]) != (
        "POST",
        QUEUE,
    ):
        return 403, "This page takes no files: it accepts only the values of its fields."
    return None


async def _start_of_body(receive: Receive) -> bytes:
    """The body, up to the first chunk beyond the longest allowed one."""
    body, more = b"", True
    while more and len(body) <= LONGEST:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body


def _holds_plain_values(body: bytes) -> bool:
    """Whether the values are numbers, strings and the like. Gradio would take an object for a file,
    and download it if its path is an address.
    """
    if len(body) > LONGEST:
        return False
    try:
        values = json.loads(body)["data"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
    return isinstance(values, list) and not any(isinstance(value, list | dict) for value in values)


def _again(body: bytes, receive: Receive) -> Receive:
    """A channel that delivers the body that was read already, and then the later messages."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return messages.pop() if messages else await receive()

    return received


async def _answer(send: Send, status: int, sentence: str) -> None:
    body = f"diffurn explore: {sentence}\n".encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
