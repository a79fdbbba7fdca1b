"""Let a model call tools until it answers in words.

    $ python examples/tool_loop.py [model.gguf]

The first turn requires a call. After that the model decides. Without a file, the embedded model
runs: it shows how the loop works, but it is too small to choose well.
"""

from __future__ import annotations

import sys
from typing import Any

from eliza_ffi import Model, TextAnswer

MAX_TURNS = 4
DEGREES = {"Oslo": 4, "Rome": 31}


def get_weather(city: str) -> dict[str, Any]:
    """Return the weather in a city."""
    return {"city": city, "degrees": DEGREES[city]}


def convert(degrees: int, unit: str) -> dict[str, Any]:
    """Convert degrees Celsius."""
    return {"degrees": degrees * 9 / 5 + 32 if unit == "fahrenheit" else degrees + 273.15}


FUNCTIONS = {"get_weather": get_weather, "convert": convert}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Return the weather in a city, in degrees Celsius.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "enum": [*DEGREES]}},
                "required": ["city"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "convert",
            "description": "Convert degrees Celsius.",
            "parameters": {
                "type": "object",
                "properties": {
                    "degrees": {"type": "integer", "minimum": -90, "maximum": 60},
                    "unit": {"type": "string", "enum": ["fahrenheit", "kelvin"]},
                },
                "required": ["degrees", "unit"],
            },
        },
    },
]


def main(path: str | None = None) -> None:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "How warm is it in Rome, in degrees Fahrenheit?"}
    ]
    with Model(path) as model:
        for turn in range(MAX_TURNS):
            choice = "auto" if turn else "required"
            answer = model.call_tool(messages, TOOLS, choice, max_tokens=100)
            messages.append(answer.to_message())
            if isinstance(answer, TextAnswer):
                print("answer:", answer.text)
                return
            result = FUNCTIONS[answer.name](**answer.arguments)
            print(f"call: {answer.name}({answer.arguments}) -> {result}")
            messages.append(answer.result(result))
    print(f"no answer after {MAX_TURNS} turns")


if __name__ == "__main__":
    main(*sys.argv[1:2])
