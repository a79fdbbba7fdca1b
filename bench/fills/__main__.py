"""Measure structured answers: beside an older version of this package, and beside llama-server.

Each version and llama-server has a process of its own, and all take turns in one run. The figures
are of an answer of each schema, of the first answer of a process, and of several answers at once.

    $ git worktree add /tmp/older v0.2.0    # and build its library there
    $ python -m bench.fills --older /tmp/older --docs docs/performance.md    # half an hour
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, astuple
from functools import partial
from pathlib import Path
from typing import Any

from page_tables import markdown_table, number

from ..parts.figures import median, quartiles
from ..parts.machine import disturbance, machine_facts, machine_line, noting_other_programs
from ..parts.pages import add_output_arguments, publish
from ..parts.workload import MODELS, Subject
from ..schemas.samples import SAMPLES
from ..together.llama_server import find_llama_server, serving
from .processes import Answered, ServerFiller, Version, worker

OURS, SERVER = "eliza-ffi", "llama-server"
OLDER_FILL, OLDER_MASKS = "older, own compiler", "older, llguidance"
OLDER = (OLDER_FILL, OLDER_MASKS)

PROMPT = "Message {}: the app crashes when I log in, please call me back.\nAnswer: "
N_CTX = 2048
N_CTX_TOGETHER = 8192
AT_ONCE = (1, 2, 4, 8, 16)
LEAST_TOGETHER = 10
"""Answers of a round: one of each schema at least."""

ALONE_MODELS = ("trained 2k", "random 32k", "random 128k", "random 262k", "wide 32k")
TOGETHER_MODELS = ("trained 2k", "random 128k", "wide 32k")
FIRST_MODEL = "random 262k"
FIRST_SCHEMA = SAMPLES["contact"]

SMALL_TIMES = 5
"""Rounds with a small model for one with a wide model."""

PARTS = ("alone", "first", "together")
"""What is measured, by the names in the results."""

Way = Callable[[Sequence[str], Sequence[Any]], Answered]


def rounds_of(
    ways: Mapping[str, Way], schemas: Sequence[Any], n_rounds: int, at_once: int = 1
) -> tuple[dict[str, list[Answered]], dict[str, str]]:
    """Return each way's answers by round, and why a way has none.

    In a round each way answers all schemas, as many at once as `at_once` says. One more round comes
    first, in which every way reads the prompts and compiles the schemas.
    """
    found: dict[str, list[Answered]] = {name: [] for name in ways}
    problems: dict[str, str] = {}
    names = list(ways)
    for i_round in range(n_rounds + 1):
        for name in names:
            if name in problems:
                continue
            try:
                answered = _all(ways[name], schemas, at_once)
            except (OSError, RuntimeError) as error:
                problems[name] = str(error)
                continue
            if i_round:
                found[name].append(answered)
        names.append(names.pop(0))  # none is always the first
    return {name: each for name, each in found.items() if name not in problems}, problems


def _all(way: Way, schemas: Sequence[Any], at_once: int) -> Answered:
    """Answer all schemas, as many at once.

    The prompts are the same in all rounds: a single one stays in every way's cache.
    """
    said = []
    for begin in range(0, len(schemas), at_once):
        some = schemas[begin : begin + at_once]
        prompts = [PROMPT.format(begin + i) for i in range(len(some))]
        said.append(way(prompts, some))
    return Answered(*(sum(each) for each in zip(*map(astuple, said), strict=True)))


def alone(subject: Subject, older: Version | None, n_rounds: int) -> list[dict[str, Any]]:
    """Measure answers of each schema, one at a time, by this version and by the older one."""
    cells = []
    with ExitStack() as open_ones:
        ways = _ways(open_ones, subject, older, OURS, *OLDER)
        for name, schema in SAMPLES.items():
            cell: dict[str, Any] = {"model": subject.name, "schema": name}
            found, cell["problems"] = rounds_of(
                ways, [schema], n_rounds if subject.is_wide else SMALL_TIMES * n_rounds
            )
            cell["ways"] = {way: _costs(answers) for way, answers in found.items()}
            if OURS in found and (others := [found[way] for way in OLDER if way in found]):
                cell |= _compared(min(others, key=_least), found[OURS])
            cells.append(cell)
    return cells


def together(subject: Subject, at_once: int, program: Path | None, n_rounds: int) -> dict[str, Any]:
    """Measure several answers at once, here and by llama-server."""
    cell: dict[str, Any] = {"model": subject.name, "at_once": at_once}
    schemas = list(SAMPLES.values())
    n = -(-max(LEAST_TOGETHER, at_once) // at_once) * at_once  # every slot is always in use
    drawn = [schemas[i % len(schemas)] for i in range(n)]
    with noting_other_programs(cell), ExitStack() as open_ones:
        ours = open_ones.enter_context(worker(Version(), subject.path(), N_CTX_TOGETHER, at_once))
        ways: dict[str, Way] = {OURS: partial(ours.fill, "fill")}
        if program is not None:
            more = (subject.path(), at_once, N_CTX_TOGETHER, ours.n_threads)
            server = open_ones.enter_context(serving(program, *more, ()))
            ways[SERVER] = ServerFiller(server.port).fill
        found, cell["problems"] = rounds_of(ways, drawn, n_rounds, at_once)
    cell["answers"] = n
    cell["ways"] = {way: _costs(answers) for way, answers in found.items()}
    if OURS in found and SERVER in found:
        cell |= _compared(found[SERVER], found[OURS])
    return cell


def first(subject: Subject, older: Version | None, n_rounds: int) -> dict[str, Any]:
    """Measure the first answer of a process, and the second, the model being open."""
    cell: dict[str, Any] = {"model": subject.name}
    spent: dict[str, list[tuple[float, float]]] = {}
    with noting_other_programs(cell):
        for _ in range(n_rounds):
            for name in (OURS, *OLDER) if older is not None else (OURS,):
                with ExitStack() as open_ones:
                    way = _ways(open_ones, subject, older, name)[name]
                    one, two = (way([PROMPT.format(i)], [FIRST_SCHEMA]).seconds for i in range(2))
                spent.setdefault(name, []).append((one, two))
    cell["ways"] = {
        name: {
            "first": quartiles([one for one, _ in each]),
            "second": quartiles([two for _, two in each]),
        }
        for name, each in spent.items()
    }
    return cell


def _ways(
    open_ones: ExitStack, subject: Subject, older: Version | None, *names: str
) -> dict[str, Way]:
    """Start some ways, each in a process of its own, and leave out an older version's without one.

    What comes first in a process whose threads have slept takes longer than what comes next.
    """
    versions = {OURS: Version(), OLDER_FILL: older, OLDER_MASKS: older}
    ways: dict[str, Way] = {}
    for name in names:
        version = versions[name]
        if version is not None:
            started = open_ones.enter_context(worker(version, subject.path(), N_CTX, 1))
            ways[name] = partial(started.fill, "masks" if name == OLDER_MASKS else "fill")
    return ways


def _costs(answers: Sequence[Answered]) -> dict[str, Any]:
    return {
        "least_seconds": _least(answers),
        "seconds": quartiles([each.seconds for each in answers]),
        "tokens": median([each.tokens for each in answers]),
        "passes": median([each.passes for each in answers]),
        "cut": median([each.n_cut for each in answers]),
    }


def _compared(others: Sequence[Answered], ours: Sequence[Answered]) -> dict[str, Any]:
    """Return how many times longer the others took: the least of all rounds, and by round."""
    pairs = zip(others, ours, strict=True)
    return {
        "times_least": _least(others) / _least(ours),
        "times": quartiles([other.seconds / mine.seconds for other, mine in pairs]),
    }


def _least(answers: Sequence[Answered]) -> float:
    return min(each.seconds for each in answers)


def run(
    older: Version | None,
    n_rounds: int,
    models: Sequence[str] = (),
    program: Path | None = None,
    at_once: Sequence[int] = AT_ONCE,
    parts: Sequence[str] = PARTS,
) -> dict[str, Any]:
    """Measure all parts or some, of all models or of some."""
    by_name = {subject.name: subject for subject in MODELS}
    _, peer = find_llama_server()
    results: dict[str, Any] = {
        "machine": machine_facts(),
        "peers": [asdict(peer)],
        "rounds": n_rounds,
        "alone": [],
        "first": [],
        "together": [],
    }
    for name in ALONE_MODELS:
        if "alone" in parts and name in (models or ALONE_MODELS):
            noted: dict[str, Any] = {}
            with noting_other_programs(noted):
                cells = alone(by_name[name], older, n_rounds)
            results["alone"] += [{**cell, **noted} for cell in cells]
            print(f"{name}, alone", file=sys.stderr)
    if "first" in parts and FIRST_MODEL in (models or [FIRST_MODEL]):
        results["first"].append(first(by_name[FIRST_MODEL], older, n_rounds))
    for name in TOGETHER_MODELS if "together" in parts else ():
        for n in at_once if name in (models or TOGETHER_MODELS) else ():
            begin = time.perf_counter()
            results["together"].append(together(by_name[name], n, program, n_rounds))
            print(f"{name}, {n} at once, {time.perf_counter() - begin:.0f} s", file=sys.stderr)
    return results


def markdown(results: dict[str, Any]) -> str:
    """Return the tables."""
    peers = ", ".join(f"{peer['name']} {peer['version'] or 'missing'}" for peer in results["peers"])
    disturbed = disturbance(
        {
            **{cell["model"]: cell for cell in results["alone"]},
            **{f"first answer of {cell['model']}": cell for cell in results["first"]},
            **{
                f"{cell['model']} with {cell['at_once']} at once": cell
                for cell in results["together"]
            },
        }.items()
    )
    return (
        "\n\n".join(
            [
                f"{machine_line(results['machine'])} {peers}. {results['rounds']} rounds, "
                f"{SMALL_TIMES * results['rounds']} of single answers of small models."
                f"{disturbed}",
                "Milliseconds of an answer, the schema being known: the least of all rounds, which "
                "other programs disturbed least. Times is how many times longer the faster of the "
                "two older ways takes: by these, and by round (the median, and the quartiles)",
                markdown_table(
                    ["model", "schema", OURS, *OLDER, "times", "by round"],
                    (
                        [
                            *(cell["model"], cell["schema"]),
                            *(_milliseconds(cell, way) for way in (OURS, *OLDER)),
                            *_times(cell),
                        ]
                        for cell in results["alone"]
                    ),
                ),
                "Tokens of an answer, and the passes behind the prompt that they took",
                markdown_table(
                    ["model", "schema", OURS, *OLDER],
                    (
                        [
                            *(cell["model"], cell["schema"]),
                            *(_size(cell, way) for way in (OURS, *OLDER)),
                        ]
                        for cell in results["alone"]
                    ),
                ),
                "Seconds until the first answer of a process, and the second, the model being open",
                markdown_table(
                    ["model", "way", "first", "second"],
                    (
                        [cell["model"], way, _range(each["first"]), _range(each["second"])]
                        for cell in results["first"]
                        for way, each in cell["ways"].items()
                    ),
                ),
                "Answers per second, several at once, in the fastest of all rounds, and the tokens "
                "of an answer. Times is how many times longer llama-server takes for the same "
                "schemas, as above",
                markdown_table(
                    ["model", "at once", OURS, SERVER, "tokens", "its tokens", "times", "by round"],
                    (
                        [
                            *(cell["model"], str(cell["at_once"])),
                            *(_per_second(cell, way) for way in (OURS, SERVER)),
                            *(_tokens(cell, way) for way in (OURS, SERVER)),
                            *_times(cell),
                        ]
                        for cell in results["together"]
                    ),
                ),
            ]
        )
        + "\n"
    )


def _milliseconds(cell: dict[str, Any], way: str) -> str:
    return number(1e3 * cell["ways"][way]["least_seconds"]) if way in cell["ways"] else "-"


def _size(cell: dict[str, Any], way: str) -> str:
    one = cell["ways"].get(way)
    return "-" if one is None else f"{one['tokens']:.0f} / {one['passes']:.0f}"


def _per_second(cell: dict[str, Any], way: str) -> str:
    one = cell["ways"].get(way)
    return "-" if one is None else number(cell["answers"] / one["least_seconds"])


def _tokens(cell: dict[str, Any], way: str) -> str:
    one = cell["ways"].get(way)
    if one is None:
        return "-"
    cut = f" ({one['cut']:.0f} cut)" if one["cut"] else ""
    return number(one["tokens"] / cell["answers"]) + cut


def _times(cell: dict[str, Any]) -> tuple[str, str]:
    if "times" not in cell:
        return "-", "-"
    return number(cell["times_least"]), _range(cell["times"])


def _range(figures: Sequence[float]) -> str:
    low, middle, high = figures
    return f"{number(middle)} ({number(low)}-{number(high)})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the figures, and print them."""
    parser = argparse.ArgumentParser(description="Measure structured answers.")
    parser.add_argument("--older", type=Path, metavar="DIR", help="a checkout to compare with")
    parser.add_argument("--older-library", type=Path, metavar="FILE", help="(DIR/build/cpu/...)")
    parser.add_argument("--rounds", type=int, default=5, help="of each (5)")
    names = [subject.name for subject in MODELS]
    parser.add_argument("--only", action="append", default=[], choices=names, help="repeated")
    parser.add_argument("--at-once", action="append", default=[], type=int, metavar="N")
    parser.add_argument(
        "--part", action="append", default=[], choices=PARTS, help="keep the file's other parts"
    )
    parser.add_argument("--render", action="store_true", help="measure nothing, show the file")
    add_output_arguments(parser)
    options = parser.parse_args(arguments)
    file, parts = options.out / "fills.json", options.part or PARTS
    old = json.loads(file.read_text(encoding="utf-8")) if options.render or options.part else {}
    if options.render:
        results = old
    else:
        older = None if options.older is None else Version(options.older, options.older_library)
        program, _ = find_llama_server()
        more = (program, options.at_once or AT_ONCE, parts)
        results = run(older, options.rounds, options.only, *more)
        results |= {part: old[part] for part in PARTS if part not in parts}
    publish("fills", results, markdown(results), options.out, options.docs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
