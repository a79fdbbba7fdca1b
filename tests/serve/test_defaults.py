"""The defaults that the operator of a server sets: length, sampling, cache, chat template."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from served import DECISIONS, ask, decisions_body

from eliza_ffi import AsyncModel, Model
from eliza_ffi.cli.console import model_options, open_model
from eliza_ffi.cli.main import build_parser
from eliza_ffi.cli.serve import read_settings
from eliza_ffi.errors import ChatTemplateError, InvalidArgumentError
from eliza_ffi.library.loading import Library
from eliza_ffi.library.protocol import StreamConfig
from eliza_ffi.serve.app import make_app
from eliza_ffi.serve.server import check_model
from eliza_ffi.serve.settings import ServeSettings

pytestmark = pytest.mark.slow

CHAT, RESPONSES, COMPLETIONS = "/v1/chat/completions", "/v1/responses", "/v1/completions"
HELLO = [{"role": "user", "content": "Hello."}]
LABELS = ["a label of several words", "another label of several words"]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


def n_tokens(answer: Any) -> int:
    usage = answer.json()["usage"]
    return int(usage.get("completion_tokens", usage.get("output_tokens")))


def test_the_default_length_is_for_requests_without_one(app_of: Callable[..., Any]) -> None:
    greedy = {"temperature": 0}
    answers = ask(
        app_of("--max-tokens", "3"),
        ("POST", CHAT, {"messages": HELLO, **greedy}),
        ("POST", RESPONSES, {"input": "Hello.", **greedy}),
        ("POST", COMPLETIONS, {"prompt": "Hello", **greedy}),
        ("POST", CHAT, {"messages": HELLO, **greedy, "max_tokens": 5}),
        ("POST", RESPONSES, {"input": "Hello.", **greedy, "max_output_tokens": 5}),
        ("POST", COMPLETIONS, {"prompt": "Hello", **greedy, "max_tokens": 5}),
    )
    assert [*map(n_tokens, answers)] == [3, 3, 3, 5, 5, 5]


def test_labels_have_no_default_length(app_of: Callable[..., Any]) -> None:
    app = app_of("--max-tokens", "1")
    limited = {"guided_choice": LABELS}
    for path, body in ((CHAT, {"messages": HELLO}), (COMPLETIONS, {"prompt": "Hello"})):
        (answer,) = ask(app, ("POST", path, {**body, **limited}))
        assert answer.status_code == 200 and n_tokens(answer) > 1


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": HELLO, "max_tokens": 12}),
        (RESPONSES, {"input": "Hello.", "max_output_tokens": 12}),
        (COMPLETIONS, {"prompt": "Hello", "max_tokens": 12}),
    ],
)
def test_default_sampling_is_for_text_without_a_constraint(
    app_of: Callable[..., Any], path: str, body: dict[str, Any]
) -> None:
    """With ``--top-k 1``, text is greedy; with a penalty, labels would be an error."""

    def texts(app: Any, **more: Any) -> list[Any]:
        answers = ask(app, *(("POST", path, {**body, **more, "seed": i}) for i in range(6)))
        assert {each.status_code for each in answers} == {200}, answers[0].text
        found = [each.json() for each in answers]
        return [each.get("output") or each["choices"] for each in found]

    def words(listed: list[Any]) -> set[str]:
        return {str({**each[0], "id": "", "logprobs": None}) for each in listed}

    assert len(words(texts(app_of()))) > 1
    assert len(words(texts(app_of("--top-k", "1")))) == 1
    assert len(words(texts(app_of("--temperature", "0")))) == 1
    assert len(words(texts(app_of("--temperature", "0"), temperature=1))) > 1
    penalized = app_of("--repeat-penalty", "1.5", "--presence-penalty", "1", "--min-p", "0.1")
    assert len(words(texts(penalized, guided_choice=LABELS))) == 1


def test_tools_are_called_without_the_default_sampling(app_of: Callable[..., Any]) -> None:
    body = {"messages": HELLO, "tools": [TOOL], "max_tokens": 8}
    bodies = [("POST", CHAT, {**body, "seed": i}) for i in range(4)]
    answers = [ask(app, *bodies) for app in (app_of("--temperature", "2"), app_of())]
    messages = {str(each.json()["choices"][0]["message"]) for both in answers for each in both}
    assert len(messages) == 1


def started(*options: str) -> Any:
    """Return the application of ``eliza-ffi serve`` with a model of its own, and the model."""
    arguments = build_parser().parse_args(["serve", "--threads", "1", *options])
    return open_model(arguments, arguments.n_slots), read_settings(arguments)


def test_text_and_decisions_use_the_cache_types(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, settings = started("-ctk", "q8_0", "-ctv", "q8_0", "-b", "64", "--flash-attn", "on")
    with opening as model:
        dialect, opened = model.session.binding._dialect, list[Any]()
        to_struct = dialect.config

        def noting(config: StreamConfig, size: int) -> Any:
            opened.append((config.cache_type_k, config.cache_type_v))
            return to_struct(config, size)

        monkeypatch.setattr(dialect, "config", noting)
        check_model(model, settings)
        answers = ask(
            make_app(AsyncModel.of(model), settings),
            ("POST", CHAT, {"messages": HELLO, "max_tokens": 2}),
            ("POST", DECISIONS, decisions_body()),
            ("POST", COMPLETIONS, {"prompt": "a", "guided_choice": LABELS}),
        )
        assert {each.status_code for each in answers} == {200}, [each.text for each in answers]
        assert model.describe()["passes"]["n_batch"] == 64
        assert len(opened) >= 4 and {*opened} == {("q8_0", "q8_0")}


def test_an_unknown_cache_type_ends_the_start(library: Library) -> None:
    opening, settings = started("--cache-type-k", "q9")
    with opening as model, pytest.raises(InvalidArgumentError, match="cache_type_k"):
        check_model(model, settings)


def test_conversations_use_the_template_of_the_file(library: Library, tmp_path: Path) -> None:
    path = tmp_path / "own.jinja"
    path.write_text("{% for m in messages %}<<{{ m.content }}>>{% endfor %}", encoding="utf-8")
    opening, settings = started("--chat-template-file", str(path))
    with opening as model:
        written = ask(
            make_app(AsyncModel.of(model), settings),
            ("POST", CHAT, {"messages": HELLO, "max_tokens": 6, "temperature": 0}),
            ("POST", COMPLETIONS, {"prompt": "<<Hello.>>", "max_tokens": 6, "temperature": 0}),
        )
        chat, text = (each.json()["choices"][0] for each in written)
        assert chat["message"]["content"] == text["text"]
        assert model.describe()["model"]["chat_template"] == path.read_text(encoding="utf-8")


def test_a_template_that_is_not_valid_ends_the_start(library: Library, tmp_path: Path) -> None:
    path = tmp_path / "broken.jinja"
    for text, error, said in (
        ("{% for %}", ChatTemplateError, "not valid"),
        (" ", InvalidArgumentError, "chat_template is empty"),
    ):
        path.write_text(text, encoding="utf-8")
        opening, _ = started("--chat-template-file", str(path))
        with pytest.raises(error, match=said), opening:
            pass


def test_the_options_of_a_model_are_the_same_in_python(library: Library) -> None:
    template = "{% for m in messages %}<<{{ m.content }}>>{% endfor %}"
    arguments = build_parser().parse_args(["serve", "--cache-type-k", "q8_0"])
    assert model_options(arguments)["options"] == {"cache_type_k": "q8_0"}
    with Model(library=library, n_threads=1, options={"chat_template": template}) as model:
        assert model.chat_template.source == template
        app = make_app(AsyncModel.of(model), ServeSettings("tiny"))
        (answer,) = ask(app, ("POST", CHAT, {"messages": HELLO, "max_tokens": 1}))
        assert answer.status_code == 200
    with pytest.raises(InvalidArgumentError, match="cache_type_k"):
        Model(library=library, options={"cache_type_k": 8})  # type: ignore[dict-item]
