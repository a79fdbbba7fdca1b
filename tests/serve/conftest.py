"""The servers that most tests of this folder share, and applications in this process."""

from __future__ import annotations

import functools
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from served import KEYS, ORIGIN, Served, served

from eliza_ffi import AsyncModel, Model
from eliza_ffi.chat import ChatTemplate, ChatTokenizer
from eliza_ffi.cli.main import build_parser
from eliza_ffi.cli.serve import read_settings
from eliza_ffi.library.loading import Library
from eliza_ffi.serve.app import make_app
from eliza_ffi.serve.learner import SetLearner, learning
from eliza_ffi.serve.server import check_model
from eliza_ffi.serve.settings import ServeSettings


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def certificates() -> Iterator[None]:
    """Read the certificates once: each `httpx.post` would read them, for most of its time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", functools.cache(ssl.create_default_context))
        yield


@pytest.fixture(scope="session")
def server(library: Library) -> Iterator[Served]:
    with served() as running:
        yield running


@pytest.fixture(scope="session")
def keyed(library: Library, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Return a server on an address that others can reach, with keys and an allowed origin."""
    path = tmp_path_factory.mktemp("keys") / "keys"
    path.write_text("\n".join(KEYS) + "\n\n", encoding="utf-8")
    options = ("--host", "0.0.0.0", "--api-key-file", str(path), "--cors-origin", ORIGIN)
    with served(*options) as running:
        running.url = running.url.replace("0.0.0.0", "127.0.0.1")
        yield running


@pytest.fixture
def client(server: Served) -> Any:
    openai = pytest.importorskip("openai", "3.54", "the package openai is not installed")
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0)


@pytest.fixture
def app_of(tiny_model: Model) -> Callable[..., Any]:
    """Return a function that returns the application of ``eliza-ffi serve`` with options."""

    def make(*options: str) -> Any:
        settings = read_settings(build_parser().parse_args(["serve", *options]))
        check_model(tiny_model, settings)
        return make_app(AsyncModel.of(tiny_model), settings)

    return make


@pytest.fixture
def learning_app_of(tiny_model: Model) -> Iterator[Callable[..., Any]]:
    """Return a function that returns such an application with ``--learn``, and its learners."""
    with ExitStack() as stack:

        def make(*options: str) -> tuple[Any, dict[str, SetLearner]]:
            settings = read_settings(build_parser().parse_args(["serve", *options]))
            learners = stack.enter_context(learning(tiny_model, settings))
            return make_app(AsyncModel.of(tiny_model), settings, None, learners), learners

        yield make


@pytest.fixture
def app_with(tiny_model: Model, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a function that returns an application whose model has another chat template."""

    def make(template: ChatTemplate) -> Any:
        session = tiny_model.session
        chat = ChatTokenizer(template, session.tokenize, session.detokenize)
        monkeypatch.setattr(session, "_chat", chat)
        monkeypatch.setattr(session, "_call_formats", {})
        return make_app(AsyncModel.of(tiny_model), ServeSettings("tiny"))

    return make
