"""Tools for agents: choose, rank and decide over the Model Context Protocol (MCP)."""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import ToolAnnotations
from pydantic import Field, WrapValidator
from typing_extensions import TypedDict

from .. import __version__
from ..async_model import AsyncModel
from ..decisions.answers import decisions_answer, name_of
from ..errors import ElizaError
from .guard import Guard
from .questions import NONE, Questions, without_default
from .request_body import MAX_BODY
from .server import CLOSING_SECONDS, StoppableServer
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


def make_mcp_server(model: AsyncModel, settings: ServeSettings) -> MCPServer:
    """Return a server with the tools of an open model and of its named sets of questions."""
    server: MCPServer = MCPServer(
        "eliza-ffi", version=__version__, instructions=INSTRUCTIONS, log_level="WARNING"
    )
    has_template = bool(model.session.describe().get("model", {}).get("has_chat_template"))

    def tool(function: Callable[..., Awaitable[Any]]) -> None:
        """Add a tool. Its errors and its deadline are reported to the agent."""

        @functools.wraps(function)
        async def run(**arguments: Any) -> Any:
            try:
                return await asyncio.wait_for(function(**arguments), settings.deadline)
            except ElizaError as error:
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
        own = QuestionSet("", questions, settings.asking)  # type: ignore[arg-type]
        asked = own if set is None else settings.sets.get(set)
        if asked is None or (questions is None) == (set is None):
            known = ", ".join(settings.sets) or "none"
            raise ToolError(f"expected either questions or one of the sets: {known}; got {set!r}")
        decision = await model.decide(input, asked.questions, **asked.asking)
        answers = [decisions_answer(answer) for answer in decision.answers]
        return Decided(answers=answers, calibrated=decision.calibrated)

    decide.__doc__ = "\n".join(
        [
            "Answer typed questions about a text, with a probability for every answer.",
            *map(_described, settings.sets.values()),
        ]
    )
    for function in (choose, rank, decide):
        tool(function)
    return server


def serve_mcp(
    server: MCPServer,
    settings: ServeSettings,
    listening: socket.socket,
    on_ready: Callable[[], None],
) -> int:
    """Serve the tools over streamable HTTP until SIGTERM or SIGINT; return the signal.

    `on_ready` is called as soon as the server handles signals.
    """
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,
        stateless_http=True,
        max_request_body_size=MAX_BODY,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    guarded = Guard(app, settings)  # checks keys, hosts and origins
    config = uvicorn.Config(
        guarded,
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=CLOSING_SECONDS,
    )
    running = StoppableServer(config, on_ready)
    running.run(sockets=[listening])
    return running.signal


def _described(each: QuestionSet) -> str:
    names = ", ".join(name_of(question.name, i) for i, question in enumerate(each.questions))
    return f"The set {each.name!r} answers: {names}."
