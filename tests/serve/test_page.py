"""Tests of the web page in Chromium: contents, accessibility, and network access."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from served import KEYS, Served

pytestmark = pytest.mark.slow

CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Return a running Chromium: the system's, or else the one installed by playwright."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = next(filter(None, map(shutil.which, CHROMIUMS)), None)
    with sync_api.sync_playwright() as playwright:
        try:
            running = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        except sync_api.Error as error:
            pytest.skip(f"Chromium is not available: {str(error).splitlines()[0]}")
        yield running
        running.close()


@pytest.fixture
def page(browser: Any, server: Served) -> Iterator[Any]:
    """Return the opened page; check at the end for errors and requests to other servers."""
    context = browser.new_context()
    opened = context.new_page()
    errors: list[str] = []
    requested: list[str] = []
    opened.on("console", lambda message: errors.append(message.text))
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("request", lambda request: requested.append(request.url))
    opened.goto(server.url)
    yield opened
    context.close()
    expected = "the server responded with a status of 400"  # some tests cause it
    assert not [text for text in errors if expected not in text]
    assert all(url.startswith((server.url, "data:")) for url in requested)


def ask(page: Any) -> None:
    page.get_by_role("button", name="Ask", exact=True).click()
    page.locator("#ask[aria-disabled=false]").wait_for()


def shares(page: Any) -> list[list[float]]:
    """Return the percentages of each answer."""
    return [
        [float(text.removesuffix(" %")) for text in answer.locator("td.share").all_inner_texts()]
        for answer in page.locator(".answer").all()
    ]


def test_the_page_works_with_the_keyboard_and_shows_bars(page: Any) -> None:
    page.get_by_label("Input").focus()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("The parcel is broken!")
    for _ in range(200):  # through all fields, to the button
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "ask":
            break
    page.keyboard.press("Enter")
    page.wait_for_selector(".answer")
    found = shares(page)
    assert [len(each) for each in found] == [3, 2, 3]
    assert all(sum(each) == pytest.approx(100, abs=0.2) for each in found)
    for answer, each in zip(page.locator(".answer").all(), found, strict=True):
        boxes = [track.bounding_box()["width"] for track in answer.locator(".track").all()]
        bars = [bar.bounding_box()["width"] for bar in answer.locator(".bar").all()]
        for share, box, bar in zip(each, boxes, bars, strict=True):
            assert bar == pytest.approx(max(1, box * share / 100), abs=1)


def test_the_page_shows_the_prompts_and_the_usage(page: Any) -> None:
    ask(page)
    page.get_by_text("The prompt", exact=True).click()
    prompts = page.locator("details", has_text="The prompt").locator("pre")
    assert prompts.count() == 3
    first = prompts.first.inner_text()
    assert "I was charged twice" in first and "- billing: payments, invoices, refunds" in first
    facts = dict(
        zip(page.locator("dt").all_inner_texts(), page.locator("dd").all_inner_texts(), strict=True)
    )
    assert int(facts["passes"]) >= 1 and float(facts["milliseconds"]) > 0
    assert facts.keys() == {"passes", "milliseconds", "tokens read", "tokens reused"}


def test_answers_and_errors_are_announced(page: Any) -> None:
    status, error = page.get_by_role("status"), page.get_by_role("alert")
    ask(page)
    assert re.match(r"Question 1: .*confidence .* Question 2: It is", status.inner_text())
    page.locator("fieldset").first.locator("textarea").nth(1).fill("one alone")
    ask(page)
    assert "expected 2 or more items, got 1" in error.inner_text()
    assert page.evaluate("document.activeElement.id") == "ask"
    page.locator("fieldset").first.locator("textarea").nth(1).fill("one\ntwo")
    ask(page)
    assert error.inner_text() == ""


def test_adding_and_removing_questions_moves_the_focus(page: Any) -> None:
    page.get_by_role("button", name="Add a question").click()
    assert page.locator("fieldset").count() == 4
    assert page.evaluate("document.activeElement.id") == "question-4-instructions"
    added = page.get_by_role("group", name="Question 4")
    added.get_by_label("Kind").select_option("score")
    assert added.get_by_label("Levels, one per line, lowest first").is_visible()
    added.get_by_label("Kind").select_option("predicate")
    assert not added.locator("textarea").nth(1).is_visible()
    page.get_by_role("button", name="Remove question 1").click()
    assert page.locator("legend").all_inner_texts() == ["Question 1", "Question 2", "Question 3"]
    assert page.evaluate("document.activeElement.id") == "question-2-type"
    for _ in range(3):
        page.get_by_role("button", name="Remove question 1").click()
    assert page.evaluate("document.activeElement.id") == "add"


def test_every_field_has_a_name_and_tables_have_headers(page: Any) -> None:
    ask(page)
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("input, select, textarea, button")].filter(
            (field) => !(field.labels?.length || field.getAttribute("aria-label")
                         || field.tagName === "BUTTON" && field.textContent.trim())
        ).map((field) => field.outerHTML)"""
    )
    assert not nameless
    assert page.evaluate("document.documentElement.lang") == "en"
    table = page.get_by_role("table", name="Probabilities of question 1")
    assert table.get_by_role("rowheader").all_inner_texts() == ["billing", "support", "sales"]
    assert table.get_by_role("columnheader").count() == 3
    levels = page.locator("h1, #decisions h2, #decisions h3").evaluate_all(
        "(all) => all.map((one) => one.tagName)"
    )
    assert levels[:2] == ["H1", "H2"] and set(levels[3:]) == {"H3"}


def test_text_is_never_parsed_as_html(page: Any) -> None:
    evil = "<img src=x onerror=\"document.title='evil'\"><script>document.title='evil'</script>"
    page.get_by_label("Input").fill(evil)
    first = page.locator("fieldset").first.locator("textarea")
    first.nth(0).fill(evil)
    first.nth(1).fill(f"{evil}\nother")
    ask(page)
    assert page.locator(".answer h3").first.inner_text() == evil
    assert page.locator(".answer th[scope=row]").first.inner_text() == evil
    assert page.title() == "eliza-ffi" and page.locator("img").count() == 0


CONTRAST = """() => {
    const channel = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    const light = (color) => {
        const [r, g, b] = color.match(/[\\d.]+/g).map(Number).map(channel);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = (element) => {
        for (let one = element; one; one = one.parentElement) {
            const color = getComputedStyle(one).backgroundColor;
            if (!/, 0\\)$/.test(color)) return color;
        }
        return getComputedStyle(document.body).backgroundColor;
    };
    const texts = "h1, h2, h3, p, label, legend, button, textarea, select, th, td, dt, dd, summary";
    return [...document.querySelectorAll(texts)].map((element) => {
        const pair = [light(getComputedStyle(element).color), light(ground(element))];
        const ratio = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
        return [ratio, element.tagName, element.className];
    }).sort((one, other) => one[0] - other[0])[0];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast_in_light_and_dark_mode(page: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    ask(page)
    ratio, *what = page.evaluate(CONTRAST)
    assert ratio >= 4.5, what  # the minimum of WCAG 2, level AA
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 24, 27)"
    assert dark == (scheme == "dark")


def test_a_narrow_screen_needs_no_horizontal_scrolling(page: Any) -> None:
    page.set_viewport_size({"width": 320, "height": 640})
    ask(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 320


def test_a_missing_key_is_reported_and_an_entered_key_is_sent(browser: Any, keyed: Served) -> None:
    opened = browser.new_page()
    opened.goto(keyed.url)
    ask(opened)
    assert "API key is wrong or missing" in opened.get_by_role("alert").inner_text()
    opened.get_by_text("API key", exact=True).click()
    opened.get_by_label("Key, if the server requires one").fill(KEYS[0])
    ask(opened)
    assert opened.locator(".answer").count() == 3
    opened.close()


def test_the_policy_allows_only_the_pages_own_script_and_style(server: Served) -> None:
    answer = httpx.get(server.url)
    policy = answer.headers["content-security-policy"]
    assert re.search(r"script-src 'sha256-[\w+/=]+'(;|$)", policy)
    assert re.search(r"style-src 'sha256-[\w+/=]+'(;|$)", policy)
    assert "connect-src 'self'" in policy and "default-src 'none'" in policy
    assert not re.search(r"\b(https?:)?//", answer.text.replace("\n//", "\n"))


def test_the_chat_tab_streams_answers_and_keeps_the_conversation(page: Any) -> None:
    page.get_by_role("tab", name="Chat").click()
    assert not page.get_by_role("button", name="Ask", exact=True).is_visible()
    for i in (1, 2):
        page.get_by_label("Message").fill("Hello, who are you?")
        page.get_by_role("button", name="Send").click()
        page.locator("#say[aria-disabled=false]").wait_for()
        said = page.get_by_role("log").locator("p:not(.who)").all_inner_texts()
        assert len(said) == 2 * i and all(said)
    page.get_by_role("button", name="New conversation").click()
    assert page.get_by_role("log").inner_text() == "No messages yet."


def test_the_chat_tab_shows_the_reasoning_before_the_answer(page: Any) -> None:
    deltas = [{"reasoning_content": "I know "}, {"reasoning_content": "it."}, {"content": "Yes."}]
    chunks = [{"model": "m", "choices": [{"delta": delta}]} for delta in deltas]
    events = [f"data: {json.dumps(each)}\n\n" for each in chunks]
    body = "".join([*events, "data: [DONE]\n\n"])
    page.route(
        "**/v1/chat/completions",
        lambda route: route.fulfill(content_type="text/event-stream", body=body),
    )
    page.get_by_role("tab", name="Chat").click()
    page.get_by_label("Message").fill("Is water wet?")
    page.get_by_role("button", name="Send").click()
    page.locator("#say[aria-disabled=false]").wait_for()
    log = page.get_by_role("log")
    assert log.locator("details pre").inner_text() == "I know it."
    assert log.locator("p:not(.who)").all_inner_texts() == ["Is water wet?", "Yes."]


def test_the_chat_tab_shows_the_probabilities_of_labels(page: Any) -> None:
    page.get_by_role("tab", name="Decisions").focus()
    page.keyboard.press("ArrowRight")
    assert page.get_by_role("tab", name="Chat").get_attribute("aria-selected") == "true"
    page.get_by_label("Message").fill("Is water wet?")
    page.get_by_label("Possible answers, one per line").fill("yes\nno")
    page.get_by_label("Message").press("Control+Enter")
    page.get_by_role("log").locator("td.share").first.wait_for()
    log = page.get_by_role("log")
    assert log.locator("tbody th").all_inner_texts() == ["yes", "no"]
    found = [float(each.removesuffix(" %")) for each in log.locator("td.share").all_inner_texts()]
    assert sum(found) == pytest.approx(100, abs=0.2)
    best = log.locator("tr.best th").inner_text()
    assert log.locator("p:not(.who)").all_inner_texts() == ["Is water wet?", best]


def test_the_chat_tab_shows_errors(page: Any) -> None:
    page.get_by_role("tab", name="Chat").click()
    page.get_by_label("Message").fill("word " * 5000)
    page.get_by_role("button", name="Send").click()
    page.locator("#say[aria-disabled=false]").wait_for()
    assert "2048" in page.get_by_role("alert").inner_text()
