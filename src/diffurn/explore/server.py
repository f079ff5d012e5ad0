"""Serving the page to this machine, and to nobody else."""

from __future__ import annotations

import os
import socket

ADDRESS = "127.0.0.1"


def prepare() -> None:
    """Imports what the page needs, told beforehand to call nobody. ImportError names what is
    missing.
    """
    os.environ.update(
        GRADIO_ANALYTICS_ENABLED="False", HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_OFFLINE="1"
    )
    import gradio  # noqa: F401
    import matplotlib  # noqa: F401


def listen(port: int) -> socket.socket:
    """A socket that waits for browsers on this machine; port 0 takes any free one. OSError where
    the port is taken or not allowed.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if os.name == "posix":
            listener.setsockopt(
                socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
            )  # a port that was just closed is free
        listener.bind((ADDRESS, port))
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


def serve(listener: socket.socket) -> None:
    """Serves the page until it is interrupted; `prepare` comes first."""
    import gradio
    import torch
    import uvicorn
    from fastapi import FastAPI
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    from diffurn.explore import page
    from diffurn.explore.guard import Guard

    torch.set_num_threads(1)  # the urns are small: threads would only wait for one another
    app = FastAPI(openapi_url=None)
    app.add_middleware(Guard)
    app.add_middleware(
        TrustedHostMiddleware, allowed_hosts=[ADDRESS, "localhost"]
    )  # DNS rebinding: names of other sites
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
    uvicorn.Server(
        uvicorn.Config(app, ws="none", log_level="warning", timeout_graceful_shutdown=1)
    ).run(sockets=[listener])
