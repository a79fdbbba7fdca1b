"""Make a model call a tool, and show the probability of each tool.

    $ python examples/required_call.py [model.gguf]

Without a file, the embedded model runs. It is too small to choose well.
"""

from __future__ import annotations

import sys

from eliza_ffi import Model

QUEUES = {"type": "string", "enum": ["billing", "delivery", "login"]}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "open_ticket",
            "description": "Open a ticket in a queue.",
            "parameters": {
                "type": "object",
                "properties": {"queue": QUEUES, "urgent": {"type": "boolean"}},
                "required": ["queue", "urgent"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "close_ticket",
            "description": "Close the ticket, because the problem is solved.",
        },
    },
]
SURE = 0.9
"""If the chosen tool is less probable than this, a person should check the call."""


def main(path: str | None = None) -> None:
    messages = [{"role": "user", "content": "You charged my card twice!"}]
    with Model(path) as model:
        call = model.call_tool(messages, TOOLS, "required")
    for name, probability in call.probabilities.items():
        print(f"{name:12} {probability:.2f}")
    verdict = "run it" if call.probability >= SURE else "ask a person"
    print(f"{call.name}({call.arguments}): {verdict}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
