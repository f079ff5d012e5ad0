"""The report: one page that is whole, honest about unfinished runs, and readable in a browser of
any width.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
import tiny_study as tiny
from typer.testing import CliRunner

from diffurn_studies.harness.errors import RunError
from diffurn_studies.harness.report import read_run, write_report
from diffurn_studies.harness.run_directory import RunDirectory, Settings
from diffurn_studies.harness.runner import run
from diffurn_studies.harness.study import Results
from diffurn_studies.harness.tables import Table, text
from support import programs

runner = CliRunner()
in_a_browser = pytest.mark.needs("chromium")


class Page(HTMLParser):
    """What a page refers to, and the texts of its cells."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.cells: list[str] = []
        self._in_a_cell = False
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in_a_cell = tag in ("td", "th")

    def handle_endtag(self, tag: str) -> None:
        self._in_a_cell = False

    def handle_data(self, data: str) -> None:
        if self._in_a_cell:
            self.cells.append(data)

    def attributes(self, name: str) -> list[str]:
        return [attrs[name] or "" for _, attrs in self.tags if name in attrs]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "tiny"
    run(tiny, tiny.Options(steps=5), out, arm="short-walk")
    return out


@pytest.fixture
def unfinished(finished: Path, tmp_path: Path) -> Path:
    out = tmp_path / "part"
    shutil.copytree(finished, out)
    for unit in ("fast0", "slow", "steps1"):
        (out / "records" / f"{unit}.json").unlink()
    return out


@pytest.fixture
def report(finished: Path, unfinished: Path, tmp_path: Path) -> Path:
    path = tmp_path / "report.html"
    result = runner.invoke(tiny.APP, ["report", str(finished), str(unfinished), "--out", str(path)])
    assert (result.exit_code, result.stdout) == (0, f"report: {path}\n"), result.output
    return path


def test_the_page_holds_tables_figures_settings_and_environment(
    report: Path, finished: Path
) -> None:
    page, source = Page(report), report.read_text(encoding="utf-8")
    [table] = tiny.table(Results("tiny", None, {}, RunDirectory(finished).records()))
    assert page.cells == [*table.columns, *(text(cell) for row in table.rows for cell in row)]
    assert "Values &lt;found&gt;" in source
    assert "<found>" not in source
    assert "The paper never had this &amp; never will." in source
    assert (tiny.__doc__ or "").partition("\n\n")[0].replace("\n", " ") in source.replace("\n", " ")
    assert [tag for tag, _ in page.tags].count("img") == 1
    for fact in ("3, 1000", "short-walk", RunDirectory(finished).environments()[0]["torch"]):
        assert f"<dd>{fact}</dd>" in source


def test_the_verdict_comes_first_then_figures_with_captions_then_tables(report: Path) -> None:
    source = report.read_text(encoding="utf-8")
    parts = (
        "<h3>Verdict</h3>\n<p>The tiny study has 6 values &lt;found&gt;.</p>",
        '<figcaption class="notes">The values &amp; nothing else.</figcaption>',
        "<table",
    )
    assert all(part in source for part in parts)
    places = [source.index(part) for part in parts]
    assert places == sorted(places)


def test_figures_stand_in_the_order_of_their_captions(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    for name in ("zebra", "ant"):
        shutil.copy(out / "figures" / "values.png", out / "figures" / f"{name}.png")
    content = json.loads((out / "tables.json").read_text())
    content["captions"] = {"zebra": "", "values": ""}
    (out / "tables.json").write_text(json.dumps(content))
    names = [figure.name for figure in read_run(out, "run").figures]
    assert names == ["zebra", "values", "ant"]


def test_a_quick_run_is_marked(tmp_path: Path) -> None:
    run(tiny, tiny.Options(steps=2), tmp_path / "run", caution="Small & fast.")
    write_report([tmp_path / "run"], tmp_path / "report.html")
    source = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<strong>Quick run:</strong> Small &amp; fast." in source
    assert "tiny</a> (quick run)" in source
    assert "<h3>Outcome of the quick run</h3>" in source


def test_columns_of_the_paper_and_of_differences_are_set_apart(report: Path) -> None:
    kinds = [
        attrs["class"]
        for tag, attrs in Page(report).tags
        if tag == "th" and attrs["scope"] == "col"
    ]
    assert kinds == ["", "number", "number paper", "number difference"]


def test_every_entry_of_the_contents_leads_somewhere_and_only_once(report: Path) -> None:
    page = Page(report)
    places = page.attributes("id")
    assert len(places) == len(set(places))
    links = page.attributes("href")
    assert len(links) == 6
    assert all(link[0] == "#" and link[1:] in places for link in links)


def test_nothing_on_the_page_is_somewhere_else(report: Path) -> None:
    page, source = Page(report), report.read_text(encoding="utf-8")
    assert not re.search(r"https?:|url\(|@import|//\w", re.sub(r"base64,[\w+/=]+", "", source))
    assert all(place.startswith("data:image/png;base64,") for place in page.attributes("src"))
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in page.tags}


def test_an_unfinished_run_is_called_so(report: Path) -> None:
    source = report.read_text(encoding="utf-8")
    assert "6 of 6 units" in source
    assert "<strong>Unfinished:</strong> 3 of 6 units." in source
    assert source.count("<table") == 1, "tables of a run that has changed since are not shown"


def test_a_run_that_was_just_started_can_be_shown(tmp_path: Path) -> None:
    options = tiny.Options()
    RunDirectory(tmp_path).claim(Settings.of("tiny", None, options, tiny.units(options)))
    write_report([tmp_path], tmp_path / "report.html")
    assert "0 of 6 units" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_folder_of_runs_is_refused_with_the_names_of_its_runs(tmp_path: Path) -> None:
    options = tiny.Options()
    (tmp_path / "one").mkdir()
    RunDirectory(tmp_path / "one").claim(Settings.of("tiny", None, options, tiny.units(options)))
    with pytest.raises(RunError, match=f"give its runs instead: {re.escape(str(tmp_path))}/one"):
        write_report([tmp_path], tmp_path / "report.html")


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda run: shutil.rmtree(run), "is not a run directory: it has no options.json"),
        (lambda run: (run / "options.json").write_text("{"), "options.json is damaged"),
        (
            lambda run: (run / "options.json").write_text('{"format": 99}'),
            "was written by a newer diffurn",
        ),
        (
            lambda run: (run / "options.json").write_text(
                '{"format": 1, "experiment": 1, "options": 2, "units": []}'
            ),
            "is damaged",
        ),
        (
            lambda run: (run / "tables.json").write_text("[]"),
            "tables.json is not a file of a diffurn run",
        ),
        (
            lambda run: (run / "tables.json").write_text('{"format": 1, "tables": [{}]}'),
            "is damaged",
        ),
        (
            lambda run: (run / "environment.json").write_bytes(b"\xff\xfe"),
            "environment.json is damaged",
        ),
    ],
)
def test_a_run_that_cannot_be_read_is_refused_and_the_last_report_stays(
    spoil: Callable[[Path], object], sentence: str, finished: Path, tmp_path: Path
) -> None:
    shutil.copytree(finished, tmp_path / "run")
    spoil(tmp_path / "run")
    (tmp_path / "report.html").write_text("the last one")
    result = runner.invoke(
        tiny.APP,
        ["report", str(finished), str(tmp_path / "run"), "--out", str(tmp_path / "report.html")],
    )
    assert result.exit_code == 2, result.output
    assert sentence in " ".join(result.stderr.split())
    assert (tmp_path / "report.html").read_text() == "the last one"


def test_links_stay_links_and_devices_stay_devices(finished: Path, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere" / "target.html"
    target.parent.mkdir()
    target.write_text("the last one")
    target.chmod(0o640)
    chain = [tmp_path / "first.html", tmp_path / "second.html", tmp_path / "dangling.html"]
    for link, destination in zip(
        chain, (target, chain[0], tmp_path / "elsewhere" / "new.html"), strict=True
    ):
        link.symlink_to(destination)
    for out in (chain[1], chain[2], Path("/dev/null")):
        result = runner.invoke(tiny.APP, ["report", str(finished), "--out", str(out)])
        assert result.exit_code == 0, result.output
    assert all(link.is_symlink() for link in chain)
    assert Path("/dev/null").is_char_device()
    assert "6 of 6 units" in target.read_text(encoding="utf-8")
    assert target.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in target.parent.iterdir()) == ["new.html", "target.html"]


def test_a_link_to_itself_is_refused(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "loop.html").symlink_to("loop.html")
    result = runner.invoke(
        tiny.APP, ["report", str(finished), "--out", str(tmp_path / "loop.html")]
    )
    assert result.exit_code == 2, result.output
    assert "symbolic links" in result.stderr
    assert (tmp_path / "loop.html").is_symlink()


def test_a_place_that_cannot_be_written_is_refused(finished: Path, tmp_path: Path) -> None:
    for out in (tmp_path, tmp_path / "no" / "report.html"):
        result = runner.invoke(tiny.APP, ["report", str(finished), "--out", str(out)])
        assert (result.exit_code, "--out" in result.stderr) == (2, True), result.output
    assert not list(tmp_path.iterdir())


def test_cells_are_spelled_for_people() -> None:
    cells = [None, float("nan"), float("inf"), float("-inf"), True, 3, 12345.678, 1e-9, "≈ 2"]
    assert [text(cell) for cell in cells] == [
        "–",
        "–",
        "∞",
        "−∞",
        "yes",
        "3",
        "1.235e+04",
        "1e-09",
        "≈ 2",
    ]


def test_a_table_survives_json_and_refuses_ragged_rows() -> None:
    table = Table("t", ["a", "b"], [[1, float("nan")], ["x", 2.5]], ["n"])
    again = Table.from_json(json.loads(json.dumps(table.as_json(), allow_nan=False)))
    assert [[text(cell) for cell in row] for row in again.rows] == [["1", "–"], ["x", "2.5"]]
    assert [again.is_numeric(column) for column in (0, 1)] == [False, True]
    with pytest.raises(ValueError, match="a row of table 't' has 1 cells for 2 columns"):
        Table("t", ["a", "b"], [[1]])


# --- in a browser
# --------------------------------------------------------------------------------------------------

# A frame as wide as a phone (windows of browsers have a smallest width) and what the page in it
# found out about itself. The script is part of a copy only: the page itself runs none.
FRAME = """<!DOCTYPE html><pre></pre><iframe src="{page}" style="border: 0; width: {width}px; height: 800px"></iframe><script>
addEventListener("message", message => document.querySelector("pre").textContent = "measured" + message.data);
</script>"""
MEASURE = """<script>addEventListener("load", () => parent.postMessage(JSON.stringify({
  window: innerWidth, content: document.documentElement.scrollWidth,
  tables: document.querySelectorAll("table").length,
  pictures: [...document.images].map(image => image.naturalWidth),
  wide: [...document.querySelectorAll(".scroll")].map(box => box.scrollWidth > box.clientWidth),
  loaded: performance.getEntriesByType("resource").map(entry => entry.name).filter(name => !name.startsWith("data:")),
}), "*"));</script>"""


def browse(page: Path, *arguments: str) -> str:
    quiet = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
    ]
    alone = [
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={page.parent / 'profile'}",
    ]
    command = [str(programs.chromium()), *quiet, *alone, *arguments, page.as_uri()]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


@pytest.fixture
def wide_report(finished: Path, tmp_path: Path) -> Path:
    """A page with a table far wider than a phone, long words and long texts."""
    run = tmp_path / "wide"
    shutil.copytree(finished, run)
    columns = [
        "a rather long description of the row",
        *(f"column {number}" for number in range(30)),
    ]
    rows = [["word" * 30, *range(30)], ["many words " * 20, *range(30)]]
    content = {
        "format": 1,
        "about": "",
        "tables": [Table("title" * 40, columns, rows, ["note" * 100]).as_json()],
    }
    (run / "tables.json").write_text(json.dumps(content))
    settings = json.loads((run / "options.json").read_text())
    settings["options"]["name"] = "long" * 100
    (run / "options.json").write_text(json.dumps(settings))
    write_report([finished, run], tmp_path / "report.html")
    return tmp_path / "report.html"


@in_a_browser
@pytest.mark.parametrize("width", [390, 1400])
def test_a_browser_shows_all_loads_nothing_and_never_scrolls_sideways(
    width: int, wide_report: Path
) -> None:
    source = wide_report.read_text(encoding="utf-8")
    policy = re.search(r"<meta http-equiv.*\n", source)
    assert policy is not None
    copy = wide_report.with_name("measured.html")
    copy.write_text(
        source.replace(policy[0], "").replace("</body>", MEASURE + "</body>"), encoding="utf-8"
    )
    frame = wide_report.with_name("frame.html")
    frame.write_text(FRAME.format(page=copy.as_uri(), width=width), encoding="utf-8")
    measured = re.search(
        r"measured(\{.*\})",
        browse(frame, "--window-size=1500,900", "--virtual-time-budget=5000", "--dump-dom"),
    )
    assert measured is not None
    found = json.loads(measured[1])
    assert found["window"] == width
    assert found["content"] <= width
    assert found["wide"][-1], "a wide table scrolls in a box of its own"
    assert found["tables"] == 2
    assert len(found["pictures"]) == 2
    assert min(found["pictures"]) > 100
    assert found["loaded"] == []


@in_a_browser
def test_a_browser_prints_the_page(report: Path) -> None:
    browse(report, f"--print-to-pdf={report.with_suffix('.pdf')}", "--no-pdf-header-footer")
    pages = len(re.findall(rb"/Type\s*/Page\b", report.with_suffix(".pdf").read_bytes()))
    assert 2 < pages < 6  # contents, a page or two for the first run, one for the second
