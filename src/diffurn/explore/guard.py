"""The requests that the page's server refuses: those of other sites, files, and whatever else the
page itself does not send.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# the page sends the values of its fields there, and nothing to any other address
QUEUE = "/gradio_api/queue/join"
LONGEST = 65_536  # bytes of such a request, which takes less than a thousand


class Guard:
    """An ASGI application in front of another one: it answers forbidden requests itself, before
    their bodies are read.

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
    """Status and sentence for a request that the page would not send, by its headers alone; None
    for one that it would.

    Example:
        >>> headers = [(b"host", b"localhost:7860")]
        >>> refusal({"method": "POST", "path": "/gradio_api/upload", "headers": headers})
        (403, 'This page takes no files: it accepts only the values of its fields.')
    """
    headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
    origin = headers.get(
        b"origin"
    )  # browsers send it with every request of another site that could change something
    if origin is not None and origin != f"http://{headers.get(b'host')}":
        return 403, f"This page takes no requests of other sites, such as {origin}."
    if scope["method"] not in ("GET", "HEAD") and (scope["method"], scope["path"]) != (
        "POST",
        QUEUE,
    ):
        return 403, "This page takes no files: it accepts only the values of its fields."
    return None


async def _start_of_body(receive: Receive) -> bytes:
    """The body, or what is too much of it."""
    body, more = b"", True
    while more and len(body) <= LONGEST:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body


def _holds_plain_values(body: bytes) -> bool:
    """Gradio would look for a file in every value that is an object, and download it if its path is
    an address.
    """
    if len(body) > LONGEST:
        return False
    try:
        values = json.loads(body)["data"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
    return isinstance(values, list) and not any(isinstance(value, list | dict) for value in values)


def _again(body: bytes, receive: Receive) -> Receive:
    """A channel that delivers a body that was read already, and then whatever comes."""
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
