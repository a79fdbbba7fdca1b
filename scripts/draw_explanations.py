#!/usr/bin/env python3
"""Draw the pictures in docs/explanation: a choice, questions that share an input, and a ranking.

$ python scripts/draw_explanations.py            # writes the pictures
$ python scripts/draw_explanations.py --check    # exit code 1 if they are out of date
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import svg
from svg import dot, legend, rect, text

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "explanation"

STYLE = svg.STYLE.format(
    light="""\
  .edge { stroke: #8c959f; stroke-width: 1.5; fill: none; }
  .way { stroke: #0072b2; stroke-width: 3.5; fill: none; }
  .decided { fill: #0072b2; }
  .forced { fill: #ffffff; stroke: #8c959f; stroke-width: 1.5; }
  .input { fill: #b85000; }
  .question { fill: #00795a; }
  .place { fill: #1f2328; }
  .inside { fill: #ffffff; font-weight: 600; }""",
    dark="""\
    .pass { fill: #333b46; }
    .edge { stroke: #656c76; }
    .way { stroke: #4fa3d9; }
    .forced { fill: #151b23; stroke: #656c76; }
    .place { fill: #d1d7e0; }
    .inside { fill: #ffffff; }
    .dark { fill: #151b23; }""",
)

HEIGHT = 34


class Box(NamedTuple):
    """A token of the trie: its position, whether it was compared with another token, its leaf."""

    token: str
    x: int
    y: int
    width: int
    is_decided: bool
    leaf: str = ""


SEND, NO = (
    Box("SEND", 130, 190, 66, True),
    Box("NO", 548, 210, 48, True),
)
BOXES = (
    Box("REPLY", 130, 70, 78, True, "REPLY"),
    SEND,
    Box("_", 222, 190, 34, False),
    Box("NOTE", 340, 110, 68, True, "SEND_NOTE"),
    Box("EMAIL", 340, 250, 72, True),
    Box("_", 438, 250, 34, False),
    NO,
    Box("W", 622, 210, 40, False, "SEND_EMAIL_NOW"),
    Box("LATE", 548, 290, 62, True),
    Box("R", 636, 290, 36, False, "SEND_EMAIL_LATER"),
)
DECISIONS = ((76, 150), (296, 207), (510, 267))
WAYS = {  # lines between the boxes: the path that was taken, and the other edges
    "way": (
        "M88 153 L130 207 M196 207 H222 M256 207 H284",
        "M306 213 L340 267 M412 267 H438 M472 267 H498",
        "M520 260 L548 227 M596 227 H622",
    ),
    "edge": (
        "M87 144 L130 87",
        "M305 199 L340 127",
        "M520 273 L548 307 M610 307 H636",
    ),
}
PASSES = (  # the tokens of each pass after the prompt's, for SEND_EMAIL_NOW
    ("token by token", (("SEND",), ("_",), ("EMAIL",), ("_",), ("NO",))),
    ("skip-ahead", (("SEND", "_"), ("EMAIL", "_"))),
    ("tree", (("SEND", "_", "EMAIL", "_"),)),
)


class Asked(NamedTuple):
    """A question after the input: its words, number of tokens, and option probabilities."""

    words: str
    n_tokens: int
    options: tuple[tuple[str, float], ...]


N_INPUT = 20
QUESTIONS = (
    Asked("Which team?", 73, (("login", 0.96), ("delivery", 0.04), ("bugs", 0.0))),
    Asked("Is the writer angry?", 23, (("yes", 0.01), ("no", 0.99))),
    Asked("How urgent is it?", 32, (("low", 0.0), ("normal", 0.48), ("high", 0.52))),
)


class Prefix(NamedTuple):
    """A prefix of the ranked labels: its last part, probability, continuations, and read number.

    The search has not read the logits after a prefix without a number.
    """

    part: str
    probability: float
    below: tuple[Prefix, ...] = ()
    number: int | None = None


SEARCH = Prefix(
    "prompt",
    1.0,
    (
        Prefix(
            "billing",
            0.832,
            (
                Prefix(
                    "invoice",
                    0.425,
                    (Prefix("wrong", 0.222), Prefix("late", 0.196), Prefix("missing", 0.008)),
                    3,
                ),
                Prefix(
                    "refund",
                    0.407,
                    (Prefix("wrong", 0.362), Prefix("late", 0.041), Prefix("missing", 0.004)),
                    4,
                ),
            ),
            2,
        ),
        Prefix("login", 0.136),
        Prefix("delivery", 0.031),
    ),
    1,
)
N_LABELS_BELOW = 6
"""The number of labels below each of the prefixes login and delivery."""


def place(x: float, y: float, number: int) -> list[str]:
    """Return the numbered dot of a decision."""
    return [
        dot(x, y, 12, "place"),
        text(x, y + 5, number, "inside dark"),
    ]


def token(box: Box) -> list[str]:
    style = "decided" if box.is_decided else "forced"
    words = text(box.x + box.width / 2, box.y + 22, box.token, "inside" if box.is_decided else "")
    leaf = box.x + box.width + 10
    named = [text(leaf, box.y + 22, box.leaf, "small", "start")] if box.leaf else []
    return [rect(box.x, box.y, box.width, HEIGHT, style), words, *named]


def pass_row(y: int, name: str, passes: Sequence[Sequence[str]]) -> list[str]:
    parts = [
        text(16, y + 22, name, "", "start"),
        rect(146, y, 84, HEIGHT, "input"),
        text(188, y + 22, "prompt", "inside"),
    ]
    x = 250
    for tokens in passes:
        widths = [26 + 9 * len(each) for each in tokens]
        parts.append(rect(x, y - 6, sum(widths) + 6 * len(tokens) + 6, HEIGHT + 12, "pass"))
        x += 6
        for each, width in zip(tokens, widths, strict=True):
            is_decided = each != "_"
            parts.append(rect(x, y, width, HEIGHT, "decided" if is_decided else "forced"))
            parts.append(text(x + width / 2, y + 22, each, "inside" if is_decided else ""))
            x += width + 6
        x += 14
    n = len(passes)
    summary = f"{n} pass{'es' if n > 1 else ''} beyond the prompt's"
    return [*parts, text(864, y + 22, summary, "small", "end")]


def picture(width: int, height: int, title: str, words: str, parts: Sequence[str]) -> str:
    return svg.svg(width, height, title, words, STYLE, parts) + "\n"


def choice() -> str:
    """Return the picture of a choice: the trie, and the passes of three strategies."""
    ways = [
        f'<path d="{path}" class="{style}"/>' for style, paths in WAYS.items() for path in paths
    ]
    parts = [
        text(16, 28, "Four labels as tokens; SEND_EMAIL_NOW is chosen", "name", "start"),
        *ways,
        *(part for i, (x, y) in enumerate(DECISIONS, 1) for part in place(x, y, i)),
        *(part for box in BOXES for part in token(box)),
        text(16, 386, "Forward passes for this choice", "name", "start"),
        *(
            part
            for i, (name, passes) in enumerate(PASSES)
            for part in pass_row(406 + 60 * i, name, passes)
        ),
        *legend(
            594,
            (
                ("decided", "compared at a decision", 200),
                ("forced", "the only allowed token", 200),
                ("pass", "one forward pass", 160),
                ("input", "the prompt's pass", 0),
            ),
        )[0],
    ]
    words = (
        "Decision 1 compares REPLY with SEND, decision 2 NOTE with EMAIL, decision 3 NO with LATE. "
        "The choice takes five passes token by token, two with skip-ahead, and one as a tree."
    )
    return picture(
        880, 628, "How a choice walks its trie, and the passes that it needs", words, parts
    )


def questions() -> str:
    """Return the picture of three questions that share an input."""
    top, row = 84, 108
    middle = top + row + 36
    n_endings = sum(each.n_tokens for each in QUESTIONS)
    parts = [
        text(16, 28, "Three questions about one input: two forward passes", "name", "start"),
        text(114, 62, f"pass 1: {N_INPUT} tokens"),
        rect(16, top - 8, 196, 3 * row - 12, "pass"),
        rect(28, middle - 22, 172, 44, "input"),
        text(114, middle + 5, "the input, once", "inside"),
        text(382, 62, f"pass 2: {n_endings} tokens"),
        rect(268, top - 8, 228, 3 * row - 12, "pass"),
    ]
    for i, asked in enumerate(QUESTIONS):
        y = top + i * row + 14
        parts += [
            f'<path d="M200 {middle:g} C240 {middle:g} 236 {y + 22} 280 {y + 22}" class="edge"/>',
            rect(280, y, 204, 44, "question"),
            text(382, y + 20, asked.words, "inside"),
            text(382, y + 37, f"{asked.n_tokens} tokens", "inside"),
            f'<path d="M484 {y + 22} H532" class="edge"/>',
            *options(540, y + 22, asked.options),
        ]
    parts.append(text(540, 62, "probabilities of the options", "", "start"))
    totals = f"One by one: {3 * N_INPUT + n_endings} tokens. Together: {N_INPUT + n_endings}."
    parts.append(text(16, top + 3 * row + 12, totals, "small", "start"))
    parts.append(
        text(864, top + 3 * row + 12, "Endings do not see each other", "small", "end"),
    )
    words = (
        "The input is decoded once. Each ending is a question with its options. The endings are "
        "branches after the input, and are decoded together in one pass."
    )
    return picture(880, top + 3 * row + 30, "How questions share an input", words, parts)


def options(x: float, y: float, listed: Sequence[tuple[str, float]]) -> list[str]:
    """Return the bars of a question's options, vertically centred at `y`."""
    parts = []
    for i, (name, probability) in enumerate(listed):
        at = y - 12 * (len(listed) - 1) + 24 * i
        width = max(160 * probability, 2)
        parts += [
            text(x, at + 5, name, "small", "start"),
            rect(x + 66, at - 8, width, 16, "decided"),
            text(x + 74 + width, at + 5, f"{probability:.2f}", "small", "start"),
        ]
    return parts


def prefix(x: float, y: float, at: Prefix) -> list[str]:
    """Return the box of a prefix, vertically centred at `y`, with the number of its read."""
    style = "pass" if at.number is None else "input" if at is SEARCH else "question"
    words = "" if at.number is None else "inside"
    number = [] if at.number is None else place(x + 134, y - 22, at.number)
    return [
        rect(x, y - 22, 134, 44, style),
        text(x + 67, y - 2, at.part, words),
        text(x + 67, y + 15, f"{at.probability:.3f}", words),
        *number,
    ]


def edge(x: float, y: float, end: float, style: str = "edge") -> str:
    """Return a line from a box to a box of the next column, whose middle is at `end`."""
    path = f"M{x:g} {y:g} C{x + 30:g} {y:g} {x + 30:g} {end:g} {x + 60:g} {end:g}"
    return f'<path d="{path}" class="{style}"/>'


def ranking() -> str:
    """Return the picture of a search for the most probable of 18 labels."""
    billing, login, delivery = SEARCH.below
    columns = (16, 210, 404, 598)
    middles = {"billing": 150, "invoice": 95, "refund": 205, "login": 300, "delivery": 362}
    root = 231
    parts = [text(16, 28, "A search for the most probable of 18 labels", "name", "start")]
    for topic in SEARCH.below:
        style = "way" if topic is billing else "edge"
        parts.append(edge(columns[0] + 134, root, middles[topic.part], style))
    parts += prefix(columns[0], root, SEARCH)
    for thing in billing.below:
        y = middles[thing.part]
        style = "way" if thing.part == "refund" else "edge"
        parts.append(edge(columns[1] + 134, middles["billing"], y, style))
        parts.append(f'<path d="M{columns[2] + 134} {y} H{columns[3] - 12}" class="{style}"/>')
        parts += prefix(columns[2], y, thing)
        parts += options(columns[3], y, [(each.part, each.probability) for each in thing.below])
    parts += prefix(columns[1], middles["billing"], billing)
    for topic in (login, delivery):
        y = middles[topic.part]
        parts += prefix(columns[1], y, topic)
        bound = f"{N_LABELS_BELOW} labels, each at most {topic.probability:.3f}: not read"
        parts.append(text(columns[1] + 150, y + 5, bound, "small", "start"))
    listed = (
        ("question", "a prefix that was read", 210),
        ("pass", "a prefix that was not read", 230),
        ("decided", "the probability of a label", 230),
        ("place", "the order of reading", 0),
    )
    parts += legend(418, listed)[0]
    words = (
        "The search reads the logits after the prompt, after billing, after invoice and after "
        "refund. Then the best label, billing, refund, wrong, has the probability 0.362. The "
        "unread prefixes, login and delivery, have at most 0.136, so no label below them is "
        "more probable."
    )
    return picture(880, 452, "How a search finds the most probable label", words, parts)


PICTURES = {"choice.svg": choice, "questions.svg": questions, "ranking.svg": ranking}


def main(arguments: Sequence[str]) -> int:
    outdated = []
    for name, draw in PICTURES.items():
        path, drawn = FOLDER / name, draw()
        if "--check" not in arguments:
            path.write_text(drawn, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != drawn:
            outdated.append(name)
    if outdated:
        how = "run scripts/draw_explanations.py"
        print(f"out of date: {', '.join(outdated)}; {how}", file=sys.stderr)
    return 1 if outdated else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
