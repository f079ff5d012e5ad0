"""The server of the interactive page over HTTP: it answers the page, and refuses forged requests
before they cost anything.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from support.processes import interruptible

pytest.importorskip(
    "gradio", reason="the page needs gradio: pip install 'diffurn[explore]'", exc_type=ImportError
)

QUEUE = "/gradio_api/queue/join"
URN = {
    "model": "Fisher",
    "groups": 3,
    "draws": 5,
    **dict(zip("abcde", (3, 5, 4, 4, 4), strict=True)),
    **dict.fromkeys("vwxyz", 0.0),
}
DISTRIBUTION = {**URN, "num_samples": 1000, "seed": 0}
GRADIENT = {**URN, "function": "count", "group": 2, "threshold": 3, "temperature": 0.5, "seed": 0}


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str


@dataclass(frozen=True)
class Server:
    """A running server: its port, and the folder that it would put files into."""

    port: int
    files: Path

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(
            method, path, body, {name.replace("_", "-"): value for name, value in headers.items()}
        )
        response = connection.getresponse()
        answer = Answer(
            response.status,
            {name.lower(): value for name, value in response.getheaders()},
            response.read().decode(),
        )
        connection.close()
        return answer

    def change(self, event: str, fields: Mapping[str, Any]) -> str:
        """The page's next content, as JSON, after its fields were given these values; the page
        itself sends the same requests.
        """
        events = {
            found["api_name"]: found["id"]
            for found in json.loads(self.ask("GET", "/config").text)["dependencies"]
        }
        body = {"data": list(fields.values()), "fn_index": events[event], "session_hash": "test"}
        headers = {"Content_Type": "application/json", "Origin": f"http://127.0.0.1:{self.port}"}
        joined = self.ask("POST", QUEUE, json.dumps(body).encode(), **headers)
        assert joined.status == 200, joined.text
        stream = self.ask("GET", "/gradio_api/queue/data?session_hash=test").text
        messages = [json.loads(line.removeprefix("data: ")) for line in stream.splitlines() if line]
        (done,) = (message for message in messages if message["msg"] == "process_completed")
        assert done["success"], done
        return json.dumps(done["output"]["data"], ensure_ascii=False)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server in whose folder for files nothing may be left, and which may not complain."""
    files = tmp_path_factory.mktemp("files")
    command = [sys.executable, "-u", "-m", "diffurn", "explore", "--no-open", "--port", "0"]
    environment = os.environ | {"TMPDIR": str(files), "GRADIO_TEMP_DIR": str(files)}
    with interruptible(
        command, environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)", process.stdout.readline())
        assert found, process.communicate()[1]
        yield Server(int(found[1]), files)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert kept(files) == []


def kept(folder: Path) -> list[Path]:
    """Gradio makes an empty folder in it when it starts."""
    return [path for path in folder.rglob("*") if not path.is_dir()]


# Requests of the page.


def test_the_page_is_served_under_both_names_of_this_machine(server: Server) -> None:
    for name in ("127.0.0.1", "localhost"):
        answer = server.ask("GET", "/", Host=f"{name}:{server.port}")
        assert (answer.status, "diffurn explore" in answer.text) == (200, True)


def test_proper_values_are_answered_with_pictures_and_tables(server: Server) -> None:
    shown = server.change("show_distribution", DISTRIBUTION)
    assert shown.count("<img") == 3
    assert "share of 1,000 samples" in shown
    assert "refusal" not in shown
    assert server.change("show_gradient", GRADIENT).count("<img") == 1


# Forged values.

NO_NUMBERS = (-1, 10**10, math.nan, math.inf, -math.inf, "5", "many", None)
RANGES = {
    "groups": "The number of groups must be a whole number from 2 to 5.",
    "draws": "The number of balls drawn must be a whole number from 1 to 60.",
    "b": "The size of group 2 must be a whole number from 0 to 20.",
    "seed": "The seed must be a whole number from 0 to 2,147,483,648.",
    "num_samples": "The number of samples to compare with must be 100, 1,000 or 10,000.",
}


@pytest.mark.parametrize("value", [*NO_NUMBERS, 2.5, 1e308], ids=str)
@pytest.mark.parametrize("field", RANGES)
def test_values_of_the_urn_out_of_range_get_a_sentence(
    server: Server, field: str, value: Any
) -> None:
    shown = server.change("show_distribution", {**DISTRIBUTION, field: value})
    assert RANGES[field] in shown
    assert "<img" not in shown


def test_a_billion_samples_get_a_sentence(server: Server) -> None:
    """They would take 23 GB of memory."""
    assert RANGES["num_samples"] in server.change(
        "show_distribution", {**DISTRIBUTION, "num_samples": 10**9}
    )


@pytest.mark.parametrize("value", [-5.1, 10**9, math.nan, "1", None], ids=str)
def test_weights_out_of_range_get_a_sentence(server: Server, value: Any) -> None:
    assert "log₂ ω of group 1 must be a number from -5 to 5." in server.change(
        "show_distribution", {**DISTRIBUTION, "v": value}
    )


@pytest.mark.parametrize("value", ["Poisson", "", 3, None])
def test_an_unknown_model_gets_a_sentence(server: Server, value: Any) -> None:
    assert "The model must be Fisher or Wallenius." in server.change(
        "show_distribution", {**DISTRIBUTION, "model": value}
    )


@pytest.mark.parametrize(
    ("field", "sentence"),
    [
        ("group", "The group must be a whole number from 1 to 5."),
        ("threshold", "The threshold must be a whole number from 1 to 20."),
        ("temperature", "τ must be a number from 0.05 to 2."),
        (
            "function",
            "f(x) must be count, squared count, squared distance from the mean, threshold or "
            "diversity.",
        ),
    ],
)
@pytest.mark.parametrize("value", NO_NUMBERS, ids=str)
def test_values_of_the_question_out_of_range_get_a_sentence(
    server: Server, field: str, sentence: str, value: Any
) -> None:
    shown = server.change("show_gradient", {**GRADIENT, field: value})
    assert sentence in shown
    assert "<img" not in shown


@pytest.mark.parametrize("value", NO_NUMBERS, ids=str)
def test_fields_that_move_others_take_any_value(server: Server, value: Any) -> None:
    assert json.loads(server.change("_next_seed", {"seed": value})) == [0]
    server.change("_visible_groups", {"groups": value, "group": value})
    server.change("_visible_choices", {"function": value})


# Forged requests.


@pytest.mark.parametrize(
    "path",
    ["upload", "upload?upload_id=1", "process_recording", "component_server", "component_server/"],
)
def test_files_are_refused_before_they_are_sent(server: Server, path: str) -> None:
    """The answer comes although no byte of the file was sent."""
    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.putrequest("POST", f"/gradio_api/{path}")
    connection.putheader("Content-Type", "multipart/form-data; boundary=x")
    connection.putheader("Content-Length", str(300 * 2**20))
    connection.endheaders()
    response = connection.getresponse()
    assert response.status == 403
    assert b"This page takes no files" in response.read()
    connection.close()


def test_a_file_of_eight_megabytes_is_refused_and_not_kept(server: Server) -> None:
    form = (
        b'--x\r\nContent-Disposition: form-data; name="files"; filename="big"\r\n\r\n'
        + bytes(2**23)
        + b"\r\n--x--\r\n"
    )
    answer = server.ask(
        "POST", "/gradio_api/upload", form, Content_Type="multipart/form-data; boundary=x"
    )
    assert (answer.status, "This page takes no files" in answer.text) == (403, True)
    assert kept(server.files) == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/gradio_api/run/show_law"),
        ("POST", "/gradio_api/call/show_law"),
        ("PUT", QUEUE),
        ("DELETE", "/"),
        ("OPTIONS", QUEUE),
    ],
)
def test_requests_that_the_page_does_not_send_are_refused(
    server: Server, method: str, path: str
) -> None:
    assert server.ask(method, path, b'{"data": []}').status == 403


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
@pytest.mark.parametrize(
    "origin",
    [
        "http://elsewhere.example",
        "http://localhost:1",
        "https://127.0.0.1:{port}",
        "http://127.0.0.1",
        "null",
    ],
)
def test_other_origins_are_refused(server: Server, method: str, origin: str) -> None:
    origin = origin.format(port=server.port)
    answer = server.ask(
        method,
        QUEUE if method == "POST" else "/config",
        b"{}",
        Origin=origin,
        Access_Control_Request_Method="POST",
    )
    assert answer.status == 403
    assert f"no requests of other sites, such as {origin}" in answer.text
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "host",
    ["elsewhere.example", "elsewhere.example:{port}", "127.0.0.1.elsewhere.example", "0.0.0.0"],
)
def test_other_names_for_this_machine_are_refused(server: Server, host: str) -> None:
    """A site can let its own name lead to this machine; its origin and the host of its requests are
    then the same.
    """
    host = host.format(port=server.port)
    assert server.ask("GET", "/", Host=host, Origin=f"http://{host}").status == 400


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"data": ["x" * 10**6], "fn_index": 0, "session_hash": "test"}),
        json.dumps(
            {
                "data": [
                    {"path": "https://elsewhere.example/file", "meta": {"_type": "gradio.FileData"}}
                ],
                "fn_index": 0,
            }
        ),
        json.dumps({"data": [[3, 5, 4]], "fn_index": 0}),
        json.dumps([1, 2, 3]),
        "[" * 60_000,
        "no JSON",
        "",
    ],
    ids=["long", "file", "list", "no object", "deep", "no JSON", "empty"],
)
def test_bodies_that_are_no_plain_values_are_refused(server: Server, body: str) -> None:
    answer = server.ask("POST", QUEUE, body.encode(), Content_Type="application/json")
    assert (answer.status, "plain JSON of at most 65,536 bytes" in answer.text) == (422, True)


def test_a_long_body_is_refused_before_all_of_it_is_sent(server: Server) -> None:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.putrequest("POST", QUEUE)
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()
    connection.send(
        b"20000\r\n" + bytes(0x20000) + b"\r\n"
    )  # the last chunk, of length 0, never comes
    assert connection.getresponse().status == 422
    connection.close()
