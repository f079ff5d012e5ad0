"""The interactive page in a real browser: it follows its sliders, fits a telephone, and asks
nothing of any other machine.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from support import programs
from support.processes import interruptible

pytest.importorskip(
    "gradio", reason="the page needs gradio: pip install 'diffurn[explore]'", exc_type=ImportError
)
pytestmark = pytest.mark.needs("playwright", "chromium")

SCREENSHOTS = Path(__file__).parents[1] / "build" / "explore"  # one of them is in the documentation
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    command = [sys.executable, "-u", "-m", "diffurn", "explore", "--no-open", "--port", "0"]
    with interruptible(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
        assert found, process.communicate()[1]
        yield found[0]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=programs.chromium(), args=QUIET)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.asked = []
    page.complaints = []
    page.on("request", lambda request: page.asked.append(request.url))
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.goto(address)
    settled(page)
    yield page
    assert page.complaints == []
    page.close()


def settled(page: Any) -> None:
    page.wait_for_selector(".panels img")
    page.wait_for_selector(".chart img")


def pictures(page: Any) -> list[str]:
    return [image.get_attribute("src") for image in page.locator(".panels img, .chart img").all()]


def slide(page: Any, label: str, key: str = "ArrowRight", times: int = 1) -> None:
    """Moves the first slider of that label by the keyboard."""
    for _ in range(times):
        page.get_by_label(f"range slider for {label}", exact=True).press(key)


def wait_until_all_differ(page: Any, before: list[str]) -> None:
    page.wait_for_function(
        "before => [...document.querySelectorAll('.panels img, .chart img')].every((image, i) => "
        "image.getAttribute('src') !== before[i])",
        arg=before,
    )


def test_all_pictures_follow_a_slider(page: Any, tmp_path: Path) -> None:
    before = pictures(page)
    assert len(before) == 4
    page.screenshot(path=tmp_path / "before.png")
    slide(page, "n, balls drawn")
    wait_until_all_differ(page, before)
    assert page.get_by_label("number input for n, balls drawn", exact=True).input_value() == "6"
    page.screenshot(path=tmp_path / "after.png")
    assert (tmp_path / "before.png").read_bytes() != (tmp_path / "after.png").read_bytes()


def test_fresh_draws_move_the_dots_and_count_the_seed_up(page: Any) -> None:
    before = pictures(page)
    page.get_by_role("button", name="Draw again").click()
    page.wait_for_function(
        "before => document.querySelector('.panels img').getAttribute('src') !== before",
        arg=before[0],
    )
    assert page.get_by_label("seed").input_value() == "1"


def test_more_groups_bring_more_panels_and_sliders(page: Any) -> None:
    slide(page, "groups", times=2)
    page.wait_for_function("() => document.querySelectorAll('.panels img').length === 5")
    page.get_by_label("range slider for m₅", exact=True).wait_for(state="visible")
    page.wait_for_function(
        "() => document.querySelector('input[aria-label=\"range slider for of group\"]').max === "
        "'5'"
    )
    slide(page, "of group", "End")
    page.get_by_text("f(x) = x5").wait_for()
    slide(page, "groups", "Home")
    page.get_by_text("f(x) = x2").wait_for()
    assert page.locator(".panels img").count() == 2


def test_wallenius_law_can_be_chosen(page: Any) -> None:
    before = pictures(page)
    page.get_by_label("Wallenius", exact=True).check()
    wait_until_all_differ(page, before)
    assert "multiplies gradients by" in page.locator(".chart").inner_text()


def test_an_impossible_urn_gets_a_sentence_and_comes_back(page: Any) -> None:
    slide(page, "n, balls drawn", "End")
    page.locator(".refusal").wait_for()
    assert page.locator(".refusal").inner_text() == (
        "60 balls cannot be drawn from an urn of 12. Draw fewer, or put more balls into the groups."
    )
    slide(page, "n, balls drawn", "Home")
    settled(page)
    assert page.locator(".refusal").count() == 0 or not page.locator(".refusal").is_visible()


def test_what_is_typed_out_of_range_gets_a_sentence_too(page: Any) -> None:
    page.get_by_label("number input for m₂", exact=True).fill("200")
    page.get_by_text("The size of group 2 must be a whole number from 0 to 20.").wait_for()


def test_a_threshold_shows_its_slider(page: Any) -> None:
    page.get_by_label("f(x)").click()
    page.get_by_role("option", name="threshold").click()
    page.get_by_label("range slider for threshold", exact=True).wait_for(state="visible")
    page.get_by_text("rank indicators carry the gradient").wait_for()


def open_tab(page: Any, name: str) -> None:
    page.get_by_role("tab", name=name).click()


def test_subsets_follow_their_sliders(page: Any) -> None:
    open_tab(page, "Subsets")
    page.get_by_text("20 subsets in all.").wait_for()
    slide(page, "d, items", times=2)
    page.get_by_text("56 subsets in all.").wait_for()
    page.get_by_label("range slider for log₂\N{NO-BREAK SPACE}ω₈", exact=True).wait_for(
        state="visible"
    )
    slide(page, "k, items chosen", "End")
    page.get_by_text("8 subsets in all.", exact=True).wait_for()
    slide(page, "d, items", "Home")
    page.get_by_text("7 of 2 items leave nothing to choose.").wait_for()


def test_a_pasted_table_is_fitted_and_a_wrong_one_gets_a_sentence(page: Any) -> None:
    open_tab(page, "Your table")
    page.get_by_text("711 of 2,201 drawn").wait_for()
    page.get_by_label("table of counts").fill("m_red,x_red,m_blue,x_blue\n5,3,9,2\n5,4,9,1\n")
    page.get_by_label("reference group", exact=False).fill("blue")
    page.get_by_role("button", name="Fit").click()
    page.get_by_text("10 of 28 drawn, in 2 rows").wait_for()
    page.get_by_label("table of counts").fill("m_red,x_red,m_blue,x_blue\n5,6,9,2\n")
    page.get_by_role("button", name="Fit").click()
    page.get_by_text("the table, line 2").wait_for()


@pytest.mark.parametrize("tab", ["Subsets", "Your table"])
@pytest.mark.parametrize("width", [1400, 390])
def test_no_tab_is_wider_than_the_screen(page: Any, width: int, tab: str) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    open_tab(page, tab)
    page.locator(".chart img, .fit img").last.wait_for(state="visible")
    page.wait_for_timeout(300)
    page.screenshot(
        path=SCREENSHOTS / f"{tab.lower().replace(' ', '-')}-{width}.png", full_page=True
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [1400, 390])
def test_nothing_is_wider_than_the_screen(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    page.wait_for_timeout(300)
    page.screenshot(path=SCREENSHOTS / f"{width}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_no_request_leaves_this_machine(page: Any) -> None:
    slide(page, "n, balls drawn")
    settled(page)
    hosts = {urlsplit(url).hostname for url in page.asked if not url.startswith(("data:", "blob:"))}
    assert hosts == {"127.0.0.1"}
