"""`diffurn explore`: an urn to play with, as a page on this machine."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from diffurn.cli.output import refuse


def explore(
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
    """Explore an urn in a browser: laws, draws and gradients follow the sliders. The page is for
    this machine alone; Ctrl-C ends it.
    """
    from diffurn.explore import server

    try:
        server.prepare()
    except ImportError as missing:
        refuse(f"the page needs {missing.name}: pip install 'diffurn[explore]'")
    try:
        listener = server.listen(port)
    except OSError as problem:
        refuse(
            f"--port {port}: {problem.strerror}; choose another, or --port 0 for any that is free"
        )
    address = f"http://{server.ADDRESS}:{listener.getsockname()[1]}"
    try:
        typer.echo(f"explore: {address} (Ctrl-C ends it)")
        if browser:
            webbrowser.open(address)
        server.serve(listener)
    except KeyboardInterrupt:
        typer.echo("stopped")
    finally:
        listener.close()
