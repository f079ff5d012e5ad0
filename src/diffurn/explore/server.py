"""Serves the page to this machine only."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

ADDRESS = "127.0.0.1"


def prepare() -> None:
    """Switches the telemetry of the page's packages off, and imports them. An ImportError names the
    one that is missing.
    """
    os.environ.update(
        GRADIO_ANALYTICS_ENABLED="False", HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_OFFLINE="1"
    )
    import gradio  # noqa: F401
    import matplotlib  # noqa: F401


def listen(port: int) -> socket.socket:
    """A socket that listens to browsers on this machine; port 0 takes any free port. OSError if the
    port is taken or not allowed.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # a port that was closed a moment ago may be used again
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((ADDRESS, port))
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


def serve(listener: socket.socket, when_ready: Callable[[], None]) -> None:
    """Serves the page until Ctrl-C; call `prepare` first.

    `when_ready` is called when the page can be opened, and when Ctrl-C can no longer interrupt an
    import.
    """
    import gradio
    import torch
    import uvicorn
    from fastapi import FastAPI
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    from diffurn.explore import page
    from diffurn.explore.guard import Guard

    torch.set_num_threads(1)  # threads do not pay for small urns
    app = FastAPI(openapi_url=None)
    app.add_middleware(Guard)
    # Against DNS rebinding, where the name of another site leads to this machine.
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=[ADDRESS, "localhost"])
    system = [gradio.themes.Font(name) for name in ("system-ui", "sans-serif")]
    monospaced = [gradio.themes.Font(name) for name in ("ui-monospace", "monospace")]
    app = gradio.mount_gradio_app(
        app,
        page.build(),
        path="/",
        server_name=ADDRESS,
        server_port=listener.getsockname()[1],
        footer_links=[],
        run_history=False,
        ssr_mode=False,
        mcp_server=False,
        pwa=False,
        theme=gradio.themes.Base(font=system, font_mono=monospaced),
        css=page.CSS,
    )

    class Server(uvicorn.Server):  # type: ignore[misc]
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            when_ready()

    Server(uvicorn.Config(app, ws="none", log_level="warning", timeout_graceful_shutdown=1)).run(
        sockets=[listener]
    )
