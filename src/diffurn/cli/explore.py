"""`diffurn explore`: the interactive demo, a page in the browser of this machine."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from diffurn._install import how_to_install
from diffurn.cli.output import refuse


def command(
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65_535, help="Port of the page on this machine; 0 takes any free one."
        ),
    ] = 7860,
    browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in a browser.")
    ] = True,
) -> None:
    """Explore an urn in a browser: its distribution, draws and gradients follow the sliders.

    The page is served to this machine only. Ctrl-C ends it.
    """
    from diffurn.explore import server

    try:
        server.prepare()
    except ImportError as missing:
        refuse(f"the page needs {missing.name}: {how_to_install('explore')}")
    try:
        listener = server.listen(port)
    except OSError as problem:
        refuse(f"--port {port}: {problem.strerror}; choose another port, or 0 for any free one")
    address = f"http://{server.ADDRESS}:{listener.getsockname()[1]}"

    def show() -> None:
        typer.echo(f"explore: {address} (Ctrl-C ends it)")
        if browser:
            webbrowser.open(address)

    try:
        server.serve(listener, show)
    except KeyboardInterrupt:
        typer.echo("stopped")
    finally:
        listener.close()
