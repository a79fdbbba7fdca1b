"""Tests of the web page in Chromium: contents, accessibility, and network access."""

from __future__ import annotations

import csv
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from served import KEYS, Served, served
from write_decision_models import cached_decision_model

from eliza_ffi.library.loading import Library

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


@contextmanager
def opened(browser: Any, *options: str) -> Iterator[Any]:
    with served(*options) as running, browser.new_page() as page:
        page.goto(running.url)
        yield page


def ask(page: Any) -> None:
    page.get_by_role("button", name="Ask", exact=True).click()
    page.locator("#ask[aria-disabled=false]").wait_for()


def send(page: Any, message: str, **settings: str) -> dict[str, Any]:
    """Send a message in the chat, with settings by their labels; return the request."""
    page.get_by_role("tab", name="Chat").click()
    for label, value in settings.items():
        field = page.locator("#chat").get_by_label(label.replace("_", " "))
        is_list = field.evaluate("(field) => field.tagName") == "SELECT"
        field.select_option(value) if is_list else field.fill(value)
    page.locator("#message").fill(message)
    with page.expect_request("**/v1/chat/completions") as sent:
        page.locator("#message").press("Control+Enter")
    page.locator("#say[aria-disabled=false]").wait_for()
    body: dict[str, Any] = sent.value.post_data_json
    return body


def stream(page: Any, *chunks: dict[str, Any]) -> None:
    """Answer every message with a stream, after a comment that the server sends while it waits."""
    events = [f"data: {json.dumps(each)}\n\n" for each in chunks]
    body = "".join([": waiting\n\n", *events, "data: [DONE]\n\n"])
    page.route(
        "**/v1/chat/completions",
        lambda route: route.fulfill(content_type="text/event-stream", body=body),
    )


def texts(page: Any) -> list[str]:
    found: list[str] = page.get_by_role("log").locator("p:not(.who)").all_inner_texts()
    return found


def shares(page: Any) -> list[list[float]]:
    return [
        [float(text.removesuffix(" %")) for text in answer.locator("td.share").all_text_contents()]
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


def test_the_page_shows_the_prompts_the_usage_and_a_command(page: Any) -> None:
    page.get_by_label("Input").fill("It's broken!")
    ask(page)
    page.get_by_text("The prompts", exact=True).click()
    prompts = page.locator("details", has_text="The prompts").locator("pre")
    assert prompts.count() == 3
    first = prompts.first.inner_text()
    assert "It's broken!" in first and "- billing: payments, invoices, refunds" in first
    cost = r"\d+ ms · forward passes: [1-9]\d* · tokens read: \d+ · tokens reused: \d+"
    assert re.fullmatch(cost, page.locator("#cost").inner_text())
    command = page.locator("details pre", has_text="curl").text_content()
    curl, url, option, body = shlex.split(command)
    assert (curl, option) == ("curl", "-d")
    answered = httpx.post(url, content=body, timeout=60).json()
    assert [each["type"] for each in answered["answers"]] == ["choice", "predicate", "score"]


def test_answers_and_errors_are_announced(page: Any) -> None:
    status, error = page.get_by_role("status"), page.get_by_role("alert")
    ask(page)
    verdicts = page.locator(".verdict").all_inner_texts()
    said = [f"Question {i + 1}: {each}" for i, each in enumerate(verdicts)]
    assert status.inner_text() == " · ".join(said)
    best = zip(page.locator(".best th").all(), page.locator(".best .share").all(), strict=True)
    assert verdicts == [f"{label.inner_text()} {p.inner_text()}" for label, p in best]
    page.locator("fieldset").first.locator("textarea").nth(1).fill("one alone")
    ask(page)
    assert error.inner_text() == "Question 1: choices: expected 2 or more items, got 1"
    assert page.locator(".answer").count() == 0
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
    assert added.get_by_label("Levels, lowest first").is_visible()
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


SENTENCES = "Hello there \U0001f4e6! I was charged twice! My dog is well. I need an answer today."


def explain(page: Any, text: str) -> None:
    """Ask with marks, with the keyboard only."""
    page.get_by_label("Input").fill(text)
    page.get_by_label("Mark the evidence for each answer").focus()
    page.keyboard.press("Space")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".answer")


def test_the_page_marks_what_speaks_for_an_answer(page: Any) -> None:
    explain(page, SENTENCES)
    first = page.locator(".answer").first
    marks = first.locator("mark.for").all_inner_texts()
    assert [re.sub(r" \+\d\.\d$", "", each) for each in marks] == ["I was charged twice!"]
    assert first.get_by_role("heading", level=4).inner_text().startswith("Evidence for (+)")
    texts = page.locator(".passages").evaluate_all(
        "(all) => all.map((each) => { for (const one of each.querySelectorAll('small'))"
        " { one.previousSibling.remove(); one.remove(); } return each.textContent; })"
    )
    assert texts == [SENTENCES] * 3
    curl = page.locator("details pre", has_text="curl").text_content()
    assert json.loads(shlex.split(curl)[-1])["explain"] is True
    page.get_by_label("Input").fill("One sentence.")
    ask(page)
    assert "nothing to mark" in page.locator(".answer").first.inner_text()


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
    const texts = "h1, h2, h3, h4, p, mark, small, label, legend, button, textarea, "
        + "select, th, td, code, summary";
    return [...document.querySelectorAll(texts)].map((element) => {
        const pair = [light(getComputedStyle(element).color), light(ground(element))];
        const ratio = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
        return [ratio, element.tagName, element.className];
    }).sort((one, other) => one[0] - other[0])[0];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast_in_light_and_dark_mode(page: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    explain(page, SENTENCES)
    assert page.locator("mark").count() > 0
    ratio, *what = page.evaluate(CONTRAST)
    assert ratio >= 4.5, what  # the minimum of WCAG 2, level AA
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 24, 27)"
    assert dark == (scheme == "dark")


def test_a_narrow_screen_needs_no_horizontal_scrolling(page: Any) -> None:
    page.set_viewport_size({"width": 320, "height": 640})
    ask(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    send(page, "word" * 100, Answer="schema")
    assert page.evaluate("document.documentElement.scrollWidth") <= 320


def test_the_answers_are_in_view_after_asking(page: Any) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    page.get_by_label("Input").press("Control+Enter")
    page.wait_for_selector(".answer")
    assert page.evaluate("scrollY") == 0
    for shown in [*page.locator(".answer").all(), page.locator("#ask")]:
        box = shown.bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] <= 900
    page.set_viewport_size({"width": 390, "height": 844})
    ask(page)
    box = page.locator(".answer").first.bounding_box()
    assert box["y"] >= 0 and box["y"] + box["height"] <= 844


@pytest.mark.parametrize(("share", "warning"), [(0.004, "only 0.4 %"), (1e-7, "almost none")])
def test_a_small_allowed_probability_is_a_warning(page: Any, share: float, warning: str) -> None:
    def small(route: Any) -> None:
        received = route.fetch().json()
        received["answers"][1]["allowed_probability"] = share
        route.fulfill(json=received)

    page.route("**/v1/decisions", small)
    ask(page)
    shown = page.locator(".answer .warning")
    assert f"Warning: {warning} of the model's own probability" in shown.inner_text()
    assert page.locator(".answer").nth(1).locator(".warning").count() == 1


@pytest.mark.parametrize(("tab", "start"), [("Decisions", "ask"), ("Chat", "say")])
def test_a_request_can_be_stopped(page: Any, tab: str, start: str) -> None:
    page.route("**/v1/**", lambda route: None)  # never answers
    page.get_by_role("tab", name=tab).click()
    page.locator(f"#{start}").press("Enter")
    page.get_by_role("button", name="Stop").click()
    assert page.get_by_role("status").inner_text() == "Stopped."
    assert page.get_by_role("alert").inner_text() == ""
    assert page.evaluate("document.activeElement.id") == start
    page.locator(f"#{start}").press("Enter")
    page.locator(f"#{start}[aria-disabled=true]").wait_for()
    page.keyboard.press("Escape")
    page.locator(f"#{start}[aria-disabled=false]").wait_for()
    assert not page.get_by_role("button", name="Stop").is_visible()


def test_a_full_queue_and_a_stopped_server_are_reported(browser: Any, library: Library) -> None:
    full = {"error": {"message": "the queue is full"}}
    with served() as running:
        page = browser.new_page()
        page.goto(running.url)
        page.route(
            "**/v1/decisions",
            lambda route: route.fulfill(status=429, headers={"retry-after": "3"}, json=full),
            times=1,
        )
        ask(page)
        error = page.get_by_role("alert")
        assert error.inner_text() == "the queue is full; try again in 3 s"
    ask(page)
    assert error.inner_text() == "The server does not answer. Is it still running?"
    page.close()


def test_the_page_works_with_a_model_without_allowed_probabilities(
    browser: Any, library: Library
) -> None:
    with opened(browser, "--model", str(cached_decision_model("kev"))) as page:
        ask(page)
        assert page.locator(".answer").count() == 3
        with page.expect_request("**/v1/decisions") as sent:
            ask(page)
        assert sent.value.post_data_json["include"] == ["prompts", "timings"]


def test_many_options_are_sorted_and_folded(page: Any) -> None:
    options = page.locator("fieldset").first.locator("textarea").nth(1)
    options.fill("\n".join(f"number {i}" for i in range(12)))
    ask(page)
    tables = page.locator(".answer").first.locator("table")
    assert [each.locator("tbody tr").count() for each in tables.all()] == [10, 2]
    assert not tables.nth(1).is_visible()
    found = shares(page)[0]
    assert found == sorted(found, reverse=True)


def test_several_labels_can_fit(page: Any) -> None:
    first = page.get_by_role("group", name="Question 1")
    first.get_by_label("Kind").select_option("labels")
    first.get_by_label("Labels, one per line").fill("money\nparcels")
    ask(page)
    answer = page.locator(".answer").first
    assert answer.locator("tbody th").all_inner_texts() == ["money", "parcels"]
    fit = ", ".join(answer.locator(".best th").all_inner_texts())
    assert answer.locator(".verdict").inner_text() == (fit or "none of them")


def test_a_set_of_the_server_is_asked_by_its_name(
    browser: Any, library: Library, tmp_path: Path
) -> None:
    asked = {
        "team": {"type": "choice", "instructions": "Which team?", "choices": ["sales", "support"]},
        "topics": {"type": "labels", "instructions": "Is it about this?", "labels": ["money"]},
    }
    (tmp_path / "tickets.json").write_text(json.dumps(asked), encoding="utf-8")
    with opened(browser, "--questions", str(tmp_path / "tickets.json")) as page:
        page.get_by_label("Questions", exact=True).select_option("tickets")
        page.get_by_text("sales, support").wait_for()
        assert not page.get_by_role("button", name="Add a question").is_visible()
        with page.expect_request("**/v1/decisions") as sent:
            ask(page)
        body = sent.value.post_data_json
        assert body["model"] == "tickets" and "questions" not in body
        assert page.locator(".answer h3").all_inner_texts() == ["Which team?", "Is it about this?"]
        page.get_by_label("Questions", exact=True).select_option("")
        ask(page)
        assert page.locator(".answer").count() == 3


def test_a_missing_key_is_reported_and_an_entered_key_is_sent(browser: Any, keyed: Served) -> None:
    opened = browser.new_page()
    opened.goto(keyed.url)
    key = opened.get_by_label("This server requires an API key")
    key.fill("wrong")
    key.press("Enter")
    opened.get_by_text("API key is wrong or missing").wait_for()
    key.fill(KEYS[0])
    key.press("Enter")
    opened.get_by_text("eliza-tiny").wait_for()
    assert not key.is_visible()
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
    for i in (1, 2):
        body = send(page, "Hello, who are you?", System_prompt="Be brief.", Temperature="0.5")
        assert body["messages"][0] == {"role": "system", "content": "Be brief."}
        assert body["temperature"] == 0.5 and len(body["messages"]) == 2 * i
        assert len(texts(page)) == 2 * i and all(texts(page))
    assert not page.get_by_role("button", name="Ask", exact=True).is_visible()
    page.get_by_role("button", name="New conversation").click()
    assert page.get_by_role("log").inner_text() == "No messages yet."


def test_the_chat_tab_shows_the_reasoning_before_the_answer(page: Any) -> None:
    deltas = [{"reasoning_content": "I know "}, {"reasoning_content": "it."}, {"content": "Yes."}]
    stream(page, *({"choices": [{"delta": delta}]} for delta in deltas))
    send(page, "Is water wet?")
    assert page.get_by_role("log").locator("details pre").inner_text() == "I know it."
    assert texts(page) == ["Is water wet?", "Yes."]


def test_the_chat_tab_shows_the_probabilities_of_labels(page: Any) -> None:
    page.get_by_role("tab", name="Decisions").focus()
    page.keyboard.press("ArrowRight")
    assert page.get_by_role("tab", name="Chat").get_attribute("aria-selected") == "true"
    send(page, "Is water wet?", Answer="labels", Labels="yes\nno")
    log = page.get_by_role("log")
    assert log.locator("tbody th").all_inner_texts() == ["yes", "no"]
    found = [float(each.removesuffix(" %")) for each in log.locator("td.share").all_inner_texts()]
    assert sum(found) == pytest.approx(100, abs=0.2)
    assert texts(page) == ["Is water wet?", log.locator("tr.best th").inner_text()]


def test_the_chat_tab_answers_with_json_by_a_schema(page: Any) -> None:
    send(page, "Hello!", Answer="schema")
    assert json.loads(texts(page)[-1]).keys() == {"language", "summary"}
    error = page.get_by_role("alert")
    send(page, "Hello!", JSON_Schema='{"type": "objekt"}')
    assert '"objekt" is not one of' in error.inner_text()
    assert page.get_by_label("Message").input_value() == "Hello!"
    page.get_by_label("JSON Schema").fill('{"type": ')
    page.get_by_role("button", name="Send").click()
    assert error.inner_text().startswith("JSON Schema: ")
    assert len(texts(page)) == 2


def test_the_chat_tab_calls_tools_and_sends_their_results(page: Any) -> None:
    body = send(page, "How is the weather in Paris?", Answer="call")
    assert body["tool_choice"] == "required"
    call = page.get_by_role("log").locator("pre").inner_text()
    assert json.loads(call.removeprefix("get_weather ")).keys() == {"city"}
    assert page.get_by_label("Result of get_weather").is_visible()
    _, called, result = send(page, "21 degrees", Answer="")["messages"]
    assert called["tool_calls"][0]["id"] == result["tool_call_id"]
    assert (result["role"], result["content"]) == ("tool", "21 degrees")
    assert page.get_by_label("Message").is_visible()


def test_the_chat_tab_reports_incomplete_answers(page: Any) -> None:
    call = {"index": 0, "id": "a", "function": {"name": "get_weather", "arguments": '{"ci'}}
    ended = {"delta": {}, "finish_reason": "length"}
    started = {"choices": [{"delta": {"tool_calls": [call]}}]}
    for chunks, message in (
        ((started, {"choices": [ended]}), "The answer is cut off"),
        (({"error": {"message": "it failed"}},), "it failed"),
        ((), "answer is empty"),
    ):
        stream(page, *chunks)
        assert len(send(page, "Hello!")["messages"]) == 1
        assert message in page.get_by_role("alert").inner_text()
        assert page.get_by_label("Message").input_value() == "Hello!"  # it can be sent again
    stream(page, {"choices": [{"delta": {"content": "Hi"}}]}, {"choices": [ended]})
    send(page, "Hello!")
    assert "cut off" in page.get_by_role("log").locator(".warning").inner_text()


def test_the_chat_tab_shows_errors(page: Any) -> None:
    send(page, "word " * 5000)
    assert "2048" in page.get_by_role("alert").inner_text()
    assert page.get_by_role("log").inner_text() == "No messages yet."


@contextmanager
def labelling(browser: Any, folder: Path) -> Iterator[tuple[Any, Path]]:
    """Open the page's tab for labels of a table; yield it with the file of the labels."""
    asked = {"team": {"type": "choice", "instructions": "Which team?", "choices": ["one", "two"]}}
    (folder / "mails.json").write_text(json.dumps(asked), encoding="utf-8")
    rows = [f"<b>mail</b> {i} about {('cats', 'invoices', 'trains')[i % 3]}" for i in range(12)]
    (folder / "mails.csv").write_text("\n".join(["body", *rows]), encoding="utf-8")
    path = folder / "mails.labels.csv"
    options = "--questions", str(folder / "mails.json"), "--learn", str(path)
    with opened(
        browser, *options, "--table", str(folder / "mails.csv"), "--column", "body"
    ) as page:
        page.get_by_role("tab", name="Label").wait_for()
        page.get_by_role("tab", name="Decisions").focus()
        page.keyboard.press("ArrowLeft")
        page.locator("#row-options button").first.wait_for()
        yield page, path


def labels_of(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))[1:]


def test_rows_of_a_table_are_labelled_with_keys(
    browser: Any, library: Library, tmp_path: Path
) -> None:
    with labelling(browser, tmp_path) as (page, path):
        shown = []
        keys = ["1", "2", "n", "s", "1", "u", "2"]
        answers = [["one"], ["two"], ["", "none"], ["", "skipped"], ["one"], None, ["two"]]
        n_lines = 0
        for key, answer in zip(keys, answers, strict=True):
            shown.append(page.locator("#row-text").inner_text())
            with page.expect_response("**/v1/labels/next"):
                page.keyboard.press(key)
            page.locator("#label[aria-busy=false]").wait_for()
            n_lines += 1 if answer else -1
            assert len(labels_of(path)) == n_lines
            if answer:
                line = labels_of(path)[-1]
                assert (line[1], line[2]) == (shown[-1], answer[0])
                assert line[3].endswith("".join(answer[1:]))
        assert len({*shown[:5]}) == 5 and shown[0].startswith("<b>mail</b>")
        assert "4 labelled rows, accuracy" in page.locator("#label-counts").inner_text()
        page.get_by_role("button", name="two").click()
        page.locator("#label[aria-busy=false]").wait_for()
        assert labels_of(path)[-1][2] == "two"
        for _ in range(12 - 6):
            page.locator("#label[aria-busy=false]").wait_for()
            page.keyboard.press("1")
        page.get_by_text("Every row is labelled.").wait_for()
        assert len({line[0] for line in labels_of(path)}) == 12
        page.keyboard.press("1")
        assert len(labels_of(path)) == 12


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_label_tab_is_readable_on_a_phone(
    browser: Any, library: Library, tmp_path: Path, scheme: str
) -> None:
    with labelling(browser, tmp_path) as (page, _):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": 320, "height": 640})
        page.keyboard.press("1")
        page.locator("#label[aria-busy=false]").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
        ratio, *what = page.evaluate(CONTRAST.replace('"h1,', '"kbd, h1,'))
        assert ratio >= 4.5, what


def test_the_label_tab_needs_a_table(page: Any) -> None:
    page.get_by_text("eliza-tiny").wait_for()
    assert not page.get_by_role("tab", name="Label").is_visible()
    page.get_by_role("tab", name="Decisions").focus()
    page.keyboard.press("ArrowLeft")
    assert page.get_by_role("tab", name="Chat").get_attribute("aria-selected") == "true"
