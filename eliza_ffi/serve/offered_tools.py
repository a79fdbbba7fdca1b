"""The few of many tools that a request offers to the model."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any

from ..decisions.prompt_settings import PromptSettings
from ..decisions.questions import Choice, Option
from ..evidence.shortlist import Shortlist
from ..session.run import Run
from ..session.task import Task
from .endpoint import RequestContext, header_of

INSTRUCTIONS = "Which tool helps with this request?"
HEADER = "x-offered-tools"


async def offered_tools(
    context: RequestContext,
    tools: list[dict[str, Any]],
    messages: Sequence[Mapping[str, Any]],
    named: str | None,
) -> list[dict[str, Any]]:
    """Return the tools that fit the last message of the user best, in their order.

    All tools are returned if there are at most `max_tools`. Tools that the conversation has called,
    and the one that must be called, are always among the returned ones. A header of the response
    names them.
    """
    at_most = context.settings.max_tools
    if not at_most or len(tools) <= at_most:
        return tools
    names = [function_of(each)["name"] for each in tools]
    if len(set(names)) < len(names):
        return tools
    called = {
        call["function"]["name"] for each in messages for call in each.get("tool_calls") or ()
    }
    kept = [i for i, name in enumerate(names) if name in called or name == named]
    text = next((_text(each) for each in reversed(messages) if each["role"] == "user"), "").strip()
    best = await _best(context, tools, names, text, at_most) if text else range(len(tools))
    # The others make room for the tools that must be there.
    places = [*kept, *(i for i in best if i not in kept)][: max(at_most, len(kept))]
    context.headers[HEADER] = header_of(names[i] for i in places)
    return [tools[i] for i in sorted(places)]


async def _best(
    context: RequestContext,
    tools: list[dict[str, Any]],
    names: Sequence[str],
    text: str,
    at_most: int,
) -> list[int]:
    session = context.model.session
    options = [
        Option(name, function_of(each).get("description") or None)
        for name, each in zip(names, tools, strict=True)
    ]

    timeout = context.deadline.left

    def task() -> Task[list[int]]:
        question = Choice(INSTRUCTIONS, options, top=at_most)
        shortlist = Shortlist(session, question, PromptSettings())

        def runs() -> Generator[Run[Any], Any, list[int]]:
            places, result = yield from shortlist.runs(session, text)
            context.count_tokens(result.prompt_tokens, result.cached_tokens)
            return places

        return Task(session, runs(), timeout)

    made: Task[list[int]] = await session.helpers.run(task)
    return await made.run_async()


def function_of(tool: dict[str, Any]) -> dict[str, Any]:
    """Return the function of a tool, which chat nests and responses do not."""
    found: dict[str, Any] = tool.get("function", tool)
    return found


def _text(message: Mapping[str, Any]) -> str:
    content = message["content"]
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text") or "" for part in content or ())
