"""Tools for agents: choose, rank and decide over the Model Context Protocol (MCP)."""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import ToolAnnotations
from pydantic import Field, WrapValidator
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from typing_extensions import TypedDict

from .. import __version__
from ..async_model import AsyncModel
from ..decisions.answers import Decision, decisions_answer, name_of
from ..decisions.wire import as_questions
from ..errors import ElizaError
from .admission import Admission
from .app import WATCHED_PATHS, admission_for, answer_error, routes_to_watch
from .deadline import Deadline, while_wanted
from .guard import Guard
from .http_error import HTTPError
from .metrics import ServeMetrics
from .questions import NONE, Questions, check_options, without_default
from .record import CLIENT_GONE, record_of
from .request_body import read_body
from .server import CLOSING_SECONDS, run_app
from .settings import QuestionSet, ServeSettings

PATH = "/mcp"
"""The path of the tools over HTTP."""

INSTRUCTIONS = """\
A local language model that answers small questions with probabilities, without cost or network. Use
`decide` to classify or judge a text, `choose` to pick one of a few labels, `rank` for many labels.
"""

Prompt = Annotated[str, Field(description="the text and the question that the label answers")]
Labels = Annotated[list[str], Field(description="the possible answers")]


class LabelProbability(TypedDict):
    label: str
    probability: float


class Chosen(LabelProbability):
    probabilities: dict[str, float]


class Ranked(TypedDict):
    labels: list[LabelProbability]
    rest: float
    proven: bool


class Decided(TypedDict):
    answers: list[dict[str, Any]]
    calibrated: bool


def make_mcp_server(
    model: AsyncModel,
    settings: ServeSettings,
    admission: Admission | None = None,
    count_decision: Callable[[Any, Decision, str | None], None] = lambda *_: None,
) -> MCPServer:
    """Return a server with the tools of an open model and of its named sets of questions.

    `count_decision` is called with the questions and the answers of each decision, and with the
    name of the set.
    """
    limits = admission_for(model, settings) if admission is None else admission
    server: MCPServer = MCPServer(
        "eliza-ffi", version=__version__, instructions=INSTRUCTIONS, log_level="WARNING"
    )
    has_template = bool(model.session.describe().get("model", {}).get("has_chat_template"))

    def tool(function: Callable[..., Awaitable[Any]]) -> None:
        """Add a tool. Its errors and its deadline are reported to the agent."""

        @functools.wraps(function)
        async def run(**arguments: Any) -> Any:
            async def placed() -> Any:
                async with limits.place(decides=function is decide):
                    return await function(**arguments)

            try:
                return await asyncio.wait_for(placed(), settings.deadline)
            except (ElizaError, HTTPError) as error:
                raise ToolError(str(error)) from error
            except asyncio.TimeoutError as error:
                raise ToolError(f"no answer within {settings.deadline:g} seconds") from error

        hints = ToolAnnotations(read_only_hint=True, open_world_hint=False)
        server.add_tool(run, annotations=hints, description=function.__doc__)

    def messages(prompt: str) -> Any:
        return [{"role": "user", "content": prompt}] if has_template else prompt

    async def choose(prompt: Prompt, labels: Labels) -> Chosen:
        """Choose the most probable of a few labels, with the probability of each."""
        result = await model.choose(messages(prompt), labels, probabilities=True)
        probabilities = dict(result.probabilities or {})
        return Chosen(
            label=result.value,
            probability=probabilities[result.value],
            probabilities=probabilities,
        )

    async def rank(
        prompt: Prompt,
        labels: Labels,
        k: Annotated[int, Field(description="how many labels to return")] = 5,
    ) -> Ranked:
        """Find the k most probable of up to 100,000 labels, with their probabilities."""
        result = await model.rank(messages(prompt), labels, k)
        found = [LabelProbability(label=label, probability=p) for label, p in result]
        return Ranked(labels=found, rest=result.rest, proven=result.proven)

    async def decide(
        input: Annotated[Any, Field(description="the text, or other JSON, to decide about")],
        questions: Annotated[
            Questions,
            WrapValidator(
                lambda questions, _: questions
            ),  # the model reads them, with better errors
            Field(description="left out if `set` is given", json_schema_extra=without_default),
        ] = NONE,
        set: Annotated[str | None, Field(description="the name of a set of questions")] = None,
    ) -> Decided:
        own = QuestionSet("", questions, settings.decide_options)  # type: ignore[arg-type]
        question_set = own if set is None else settings.sets.get(set)
        if question_set is None or (questions is None) == (set is None):
            known = ", ".join(settings.sets) or "none"
            raise ToolError(f"expected either questions or one of the sets: {known}; got {set!r}")
        asked = as_questions(question_set.questions)
        check_options(asked, settings.max_options)
        decision = await model.decide(input, asked, **question_set.decide_options)
        count_decision(asked, decision, set)
        answers = [decisions_answer(answer) for answer in decision.answers]
        return Decided(answers=answers, calibrated=decision.calibrated)

    decide.__doc__ = "\n".join(
        [
            "Answer typed questions about a text, with a probability for every answer.",
            *map(_described, settings.sets.values()),
        ]
    )
    generates = model.session.kind == "decoder"
    for function in (choose, rank, decide) if generates else (decide,):
        tool(function)
    return server


def serve_mcp(
    model: AsyncModel,
    settings: ServeSettings,
    listening: socket.socket,
    on_ready: Callable[[], None],
) -> int:
    """Serve the tools over streamable HTTP until SIGTERM or SIGINT; return the signal.

    The limits, metrics and shutdown are the same as in :func:`~eliza_ffi.serve.server.serve`.
    """
    admission = admission_for(model, settings)
    return run_app(
        make_mcp_app(model, settings, admission), admission, listening, on_ready, lifespan="on"
    )


def make_mcp_app(model: AsyncModel, settings: ServeSettings, admission: Admission) -> ASGIApp:
    """Return the application that serves the tools over HTTP."""
    metrics = ServeMetrics(
        admission,
        lambda: model.session.describe().get("passes", {}),
        (PATH, *WATCHED_PATHS),
        settings.deadline,
    )
    server = make_mcp_server(model, settings, admission, metrics.count_decision)
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,
        stateless_http=True,
        max_request_body_size=settings.max_body,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    (tools,) = (each for each in app.routes if isinstance(each, Route) and each.path == PATH)
    watched = _Watched(tools.app, settings)
    # Without the second path, a client of it would be redirected to http, also behind TLS. Without
    # sessions, a stream of a GET would have no messages, so the protocol wants the status 405.
    app.router.routes[:] = [
        Route(PATH, watched, methods=["POST"]),
        Route(f"{PATH}/", watched, methods=["POST"]),
        *routes_to_watch(admission, metrics),
    ]
    app.router.redirect_slashes = False
    for kind in (HTTPError, HTTPException, Exception):
        app.add_exception_handler(kind, answer_error)
    return Guard(app, settings, metrics.count_request)  # checks keys, hosts and origins


class _Watched:
    """Ends the work of a request when its client disconnects."""

    def __init__(self, app: ASGIApp, settings: ServeSettings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        settings = self._settings
        # The tools have the same deadline, and report it in the form of the protocol.
        deadline = Deadline(settings.deadline + CLOSING_SECONDS)
        try:
            body = await deadline.before_end(read_body(Request(scope, receive), settings.max_body))
            sent = [body]

            async def receive_body() -> Message:
                if not sent:
                    await asyncio.Event().wait()  # until the work is cancelled
                return {"type": "http.request", "body": sent.pop(), "more_body": False}

            coded = (b"content-encoding", b"content-length")  # of the body as it was sent
            headers = [each for each in scope["headers"] if each[0] not in coded]
            work = self._app({**scope, "path": PATH, "headers": headers}, receive_body, send)
            await while_wanted(work, receive, deadline)  # type: ignore[arg-type]
        except ClientDisconnect:
            record_of(scope).status = CLIENT_GONE


def _described(each: QuestionSet) -> str:
    names = ", ".join(name_of(question.name, i) for i, question in enumerate(each.questions))
    return f"The set {each.name!r} answers: {names}."
