"""Answer several questions concurrently on an event loop, with several tool calls in one turn.

    $ python examples/parallel_calls.py [model.gguf]

The questions share forward passes, and the tools of one turn run concurrently. Without a file, the
embedded model runs. It is too small to choose well.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from eliza_ffi import AsyncModel, TextAnswer

CITIES = {"type": "string", "enum": ["Oslo", "Rome", "Tokyo"]}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {"city": CITIES},
                "required": ["city"],
            },
        },
    }
    for name, description in (
        ("get_weather", "Return the weather in a city."),
        ("get_time", "Return the time in a city."),
    )
]
QUESTIONS = ("Is it warm in Rome and in Oslo?", "What time is it in Tokyo?")


async def run(name: str, arguments: dict[str, Any]) -> str:
    """Run a tool. A real program would call a service here."""
    await asyncio.sleep(0.01)
    return f"{name} of {arguments['city']}"


async def answer(model: AsyncModel, question: str) -> str:
    messages: list[dict[str, Any]] = [{"role": "user", "content": question}]
    calls = await model.call_tools(messages, TOOLS, "required", max_calls=3)
    results = await asyncio.gather(*(run(call.name, call.arguments) for call in calls))
    messages.append(calls.to_message())
    messages += [call.result(result) for call, result in zip(calls, results, strict=True)]
    last = await model.call_tools(messages, TOOLS, max_tokens=40)
    text = last.text if isinstance(last, TextAnswer) else f"{len(last)} more calls"
    return f"{question} {results} {text!r}"


async def main(path: str | None = None) -> None:
    async with await AsyncModel.open(path) as model:
        for line in await asyncio.gather(*(answer(model, question) for question in QUESTIONS)):
            print(line)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2]))
