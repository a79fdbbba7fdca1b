"""Compare structured answers with an older version of this package, and with llama-server.

Both versions and llama-server run in their own processes, and take turns. Three things are
measured: one answer for each schema, the first answer of a process, and several answers at once.

    $ git worktree add /tmp/older v0.2.0    # then build the library there
    $ python -m bench.fills --older /tmp/older    # half an hour
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, astuple
from functools import partial
from pathlib import Path
from typing import Any

from page_tables import markdown_table, number

from ..parts.figures import in_turns, median, quartiles
from ..parts.machine import disturbance, machine_facts, machine_line, noting_other_programs
from ..parts.pages import (
    add_filter,
    bench_parser,
    by_method,
    page_of,
    publish,
    spread,
    stored,
    stored_or_measured,
    versions_of,
)
from ..parts.workload import MODELS, Subject
from ..together.llama_server import find_llama_server, serving
from .processes import Answered, ServerFiller, Version, worker
from .samples import SAMPLES

OURS, SERVER = "eliza-ffi", "llama-server"
OLDER_FILL, OLDER_MASKS = "older version, own compiler", "older version, llguidance"
OLDER = (OLDER_FILL, OLDER_MASKS)

PROMPT = "Message {}: the app crashes when I log in, please call me back.\nAnswer: "
N_CTX = 2048
N_CTX_TOGETHER = 8192
AT_ONCE = (1, 2, 4, 8, 16)
LEAST_TOGETHER = 10
"""The fewest answers of a round: one for each schema."""

ALONE_MODELS = ("trained 2k", "random 32k", "random 128k", "random 262k", "wide 32k")
TOGETHER_MODELS = ("trained 2k", "random 128k", "wide 32k")
FIRST_MODEL = "random 262k"
FIRST_SCHEMA = SAMPLES["contact"]

SMALL_TIMES = 5
"""How many times more rounds a small model gets than a wide model."""

PARTS = ("alone", "first", "together")
"""The names of the three measurements in the results."""

Way = Callable[[Sequence[str], Sequence[Any]], Answered]


def rounds_of(
    ways: Mapping[str, Way], schemas: Sequence[Any], n_rounds: int, at_once: int = 1
) -> tuple[dict[str, list[Answered]], dict[str, str]]:
    """Run all methods in turns; return their answers by round, and the errors of failed methods.

    In a round, each method answers all schemas, `at_once` schemas at a time. One untimed round
    comes first, in which every method decodes the prompts and compiles the schemas.
    """
    found: dict[str, list[Answered]] = {name: [] for name in ways}
    problems: dict[str, str] = {}
    for i_round, names in enumerate(in_turns(ways, n_rounds + 1)):
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
    return {name: each for name, each in found.items() if name not in problems}, problems


def _all(way: Way, schemas: Sequence[Any], at_once: int) -> Answered:
    """Answer all schemas, `at_once` schemas at a time.

    The prompts are the same in all rounds. If there is only one, it stays in every method's cache.
    """
    answered = []
    for begin in range(0, len(schemas), at_once):
        some = schemas[begin : begin + at_once]
        prompts = [PROMPT.format(begin + i) for i in range(len(some))]
        answered.append(way(prompts, some))
    return Answered(*(sum(each) for each in zip(*map(astuple, answered), strict=True)))


def alone(subject: Subject, older: Version | None, n_rounds: int) -> list[dict[str, Any]]:
    """Measure single answers for each schema with this version and the older one."""
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
    """Measure several answers at once with this version and with llama-server."""
    cell: dict[str, Any] = {"model": subject.name, "at_once": at_once}
    schemas = list(SAMPLES.values())
    n = -(-max(LEAST_TOGETHER, at_once) // at_once) * at_once  # so that all slots are always in use
    drawn = [schemas[i % len(schemas)] for i in range(n)]
    name = f"{subject.name}, {at_once} at once"
    with noting_other_programs(cell, name), ExitStack() as open_ones:
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
    """Measure the first and the second answer of a process, after the model was loaded."""
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
    """Start some methods, each in its own process.

    Without an older version, its methods are left out. The processes are separate because the first
    answer after a process has slept takes longer than the next one.
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
    """Return the time of `others` relative to `ours`: of the fastest rounds, and by round."""
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
    """Run the measurements.

    Parameters
    ----------
    older
        The older version; None = do not compare with one.
    models
        The names of the models; empty = all.
    program
        llama-server; None = not available.
    at_once
        The numbers of simultaneous answers.
    parts
        The measurements, among `PARTS`.
    """
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
            with noting_other_programs(noted, f"{name}, alone"):
                cells = alone(by_name[name], older, n_rounds)
            results["alone"] += [{**cell, **noted} for cell in cells]
    if "first" in parts and FIRST_MODEL in (models or [FIRST_MODEL]):
        results["first"].append(first(by_name[FIRST_MODEL], older, n_rounds))
    for name in TOGETHER_MODELS if "together" in parts else ():
        for n in at_once if name in (models or TOGETHER_MODELS) else ():
            results["together"].append(together(by_name[name], n, program, n_rounds))
    return results


def markdown(results: dict[str, Any]) -> str:
    """Return the tables."""
    single, several = results["alone"], results["together"]
    disturbed = disturbance(
        {
            **{cell["model"]: cell for cell in single},
            **{f"first answer of {cell['model']}": cell for cell in results["first"]},
            **{f"{cell['model']} with {cell['at_once']} at once": cell for cell in several},
        }.items()
    )
    return page_of(
        f"{machine_line(results['machine'])} {versions_of(results['peers'])}. "
        f"{results['rounds']} rounds, {SMALL_TIMES * results['rounds']} for single answers of "
        f"small models.{disturbed}",
        "Milliseconds of an answer, with a schema that is already compiled: the fastest of "
        "all rounds, because other programs disturbed it least. *Ratio* is the time of "
        "the faster older method, divided by this version's time. *Ratio by round* is the "
        "median of the ratios within a round, and the quartiles in parentheses",
        markdown_table(
            ["model", "schema", OURS, *OLDER, "ratio", "ratio by round"],
            (
                [
                    *(cell["model"], cell["schema"]),
                    *by_method(cell["ways"], (OURS, *OLDER), _milliseconds),
                    *_times(cell),
                ]
                for cell in single
            ),
        ),
        "Tokens of an answer / passes after the prompt",
        markdown_table(
            ["model", "schema", OURS, *OLDER],
            (
                [
                    *(cell["model"], cell["schema"]),
                    *by_method(cell["ways"], (OURS, *OLDER), _size),
                ]
                for cell in single
            ),
        ),
        "Seconds of the first and the second answer of a process, after the model was "
        "loaded: median, and the quartiles in parentheses",
        markdown_table(
            ["model", "method", "first", "second"],
            (
                [cell["model"], way, spread(each["first"]), spread(each["second"])]
                for cell in results["first"]
                for way, each in cell["ways"].items()
            ),
        ),
        "Several answers at once: answers per second in the fastest of all rounds, and "
        "tokens of an answer. *Ratio* is llama-server's time for the same schemas, divided "
        f"by the time of {OURS}; *ratio by round* as above",
        markdown_table(
            [
                *("model", "at once", OURS, SERVER),
                *(f"tokens, {OURS}", f"tokens, {SERVER}", "ratio", "ratio by round"),
            ],
            (
                [
                    *(cell["model"], str(cell["at_once"])),
                    *by_method(cell["ways"], (OURS, SERVER), partial(_per_second, cell["answers"])),
                    *by_method(cell["ways"], (OURS, SERVER), partial(_tokens, cell["answers"])),
                    *_times(cell),
                ]
                for cell in several
            ),
        ),
    )


def _milliseconds(way: dict[str, Any]) -> str:
    return number(1e3 * way["least_seconds"])


def _size(way: dict[str, Any]) -> str:
    return f"{way['tokens']:.0f} / {way['passes']:.0f}"


def _per_second(n_answers: int, way: dict[str, Any]) -> str:
    return number(n_answers / way["least_seconds"])


def _tokens(n_answers: int, way: dict[str, Any]) -> str:
    cut = f" ({way['cut']:.0f} truncated)" if way["cut"] else ""
    return number(way["tokens"] / n_answers) + cut


def _times(cell: dict[str, Any]) -> tuple[str, str]:
    if "times" not in cell:
        return "-", "-"
    return number(cell["times_least"]), spread(cell["times"])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = bench_parser("Compare structured answers with an older version and with llama-server.")
    parser.add_argument("--older", type=Path, metavar="DIR", help="a checkout of the older version")
    parser.add_argument(
        "--older-library",
        type=Path,
        metavar="FILE",
        help="the library of the older version (DIR/build/cpu/...)",
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each measurement (5)")
    names = [subject.name for subject in MODELS]
    add_filter(parser, "--only", "this model", choices=names)
    add_filter(parser, "--at-once", "N answers at once", type=int, metavar="N")
    what = "this part, and keep the stored results of the others"
    add_filter(parser, "--part", what, choices=PARTS)
    options = parser.parse_args(arguments)
    parts = options.part or PARTS
    older = None if options.older is None else Version(options.older, options.older_library)

    def measured() -> dict[str, Any]:
        more = (find_llama_server()[0], options.at_once or AT_ONCE, parts)
        results = run(older, options.rounds, options.only, *more)
        kept = stored(options.out / "fills.json") if options.part else {}
        return results | {part: kept[part] for part in PARTS if part not in parts}

    results = stored_or_measured(options, "fills", measured)
    return publish("fills", results, markdown(results), options)


if __name__ == "__main__":
    sys.exit(main())
