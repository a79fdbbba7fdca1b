"""Real data sets with known answers, each as a question and two samples of labelled rows.

The samples do not change between runs, and no text is in both. `scripts/fetch_real_models.py`
downloads the data. Only the tickets are in the repository: messages that we wrote ourselves.
"""

from __future__ import annotations

import csv
import html
import json
import random
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from fetch_real_models import fetch

from eliza_ffi.decisions import Choice, Predicate, Score

Question: TypeAlias = "Choice | Score | Predicate"
Row: TypeAlias = "tuple[str, str | bool]"
"""An input and its right answer."""

N_TRAIN, N_TEST = 300, 1000
FIRST_OF_EACH = 5
"""How many rows of every option stand at the beginning of the labelled rows."""

RATING_LEVELS = ("very negative", "negative", "neutral", "positive", "very positive")
RATING_CUTS = (-2.0, -0.5, 0.5, 2.0)
"""The lowest mean ratings, from -4 to 4, of the levels after the first."""


@dataclass(frozen=True)
class DataSet:
    """A question with labelled rows."""

    name: str
    question: Question
    # The rows to learn from. They begin with `FIRST_OF_EACH` rows of every option. In the rest, the
    # options are as frequent as in the test rows.
    train: tuple[Row, ...]
    # The rows to measure on. The options are equally frequent in all parts of the list.
    test: tuple[Row, ...]

    @property
    def values(self) -> tuple[str | bool, ...]:
        """The possible answers, in the order of the question's options."""
        return values_of(self.question)

    def targets(self, rows: Sequence[Row]) -> list[int]:
        """Return the positions of the right answers in `values`."""
        place = {value: i for i, value in enumerate(self.values)}
        return [place[value] for _, value in rows]


def values_of(question: Question) -> tuple[str | bool, ...]:
    """Return the possible answers to a question, in the order of its probabilities."""
    if isinstance(question, Predicate):
        return (True, False)
    if isinstance(question, Score):
        return tuple(level.label for level in question.levels)
    return tuple(option.value for option in question.options)


@dataclass(frozen=True)
class Source:
    """How to make a data set: its question, its rows, and how to sample them."""

    question: Question
    rows: Callable[[], Iterator[Row]]
    balanced: bool = False  # whether to make all options equally frequent
    n_train: int = N_TRAIN


def load(name: str, seed: int = 0) -> DataSet:
    """Return a data set by its name in `SOURCES`; its file is downloaded on first use.

    Another seed draws other rows to learn from and to measure on.
    """
    source = SOURCES[name]
    drawn = _without_repeats(source.rows())
    random.Random(20 + seed).shuffle(drawn)
    if source.balanced:
        drawn = _in_turns(drawn, min(map(len, _by_value(drawn).values())))
    first = _in_turns(drawn, FIRST_OF_EACH)
    chosen = set(first)
    rest = _spread([row for row in drawn if row not in chosen])
    n_more = source.n_train - len(first)
    train, test = (*first, *rest[:n_more]), tuple(rest[n_more:][:N_TEST])
    return DataSet(name, source.question, train, test)


def _without_repeats(rows: Iterator[Row]) -> list[Row]:
    """Drop texts that differ only in case and spaces, and all rows of a text with two answers."""
    found: dict[str, list[Row]] = defaultdict(list)
    for text, value in rows:
        if text := text.strip():
            found[" ".join(text.casefold().split())].append((text, value))
    return [same[0] for same in found.values() if len({value for _, value in same}) == 1]


def _by_value(rows: Sequence[Row]) -> dict[str | bool, list[Row]]:
    found: dict[str | bool, list[Row]] = defaultdict(list)
    for row in rows:
        found[row[1]].append(row)
    return found


def _in_turns(rows: Sequence[Row], n_each: int) -> list[Row]:
    """Return the first `n_each` rows of every answer, the answers taking turns."""
    groups = [group for _, group in sorted(_by_value(rows).items(), key=lambda each: str(each[0]))]
    return [group[i] for i in range(n_each) for group in groups if i < len(group)]


def _spread(rows: Sequence[Row]) -> list[Row]:
    """Order rows so that every answer is about equally frequent in all parts of the list."""
    placed = [
        ((i + 0.5) / len(group), row)
        for group in _by_value(rows).values()
        for i, row in enumerate(group)
    ]
    return [row for _, row in sorted(placed, key=lambda each: each[0])]


# The readers.


def _trec_rows(names: Mapping[str, str]) -> Iterator[Row]:
    """Read the questions whose fine label, or its first part, has a name."""
    for line in fetch("trec").read_text(encoding="latin-1").splitlines():
        code, _, text = line.partition(" ")
        name = names.get(code, names.get(code.partition(":")[0]))
        if name is not None:
            yield text, name


def _spam_rows(spam: str | bool, other: str | bool) -> Iterator[Row]:
    with fetch("sms-spam").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            # Unbalanced quotes make some rows swallow the next lines of the original file.
            if "\nham\t" not in row["text"] and "\nspam\t" not in row["text"]:
                yield row["text"], spam if row["spam"] == "1" else other


def _sentiment_rows() -> Iterator[Row]:
    for file in sorted(fetch("sentiment").glob("*.json")):
        for row in json.loads(file.read_text(encoding="utf-8")):
            if row["class"] is not None:
                yield row["text"], "positive" if row["class"] else "negative"


def _rating_rows() -> Iterator[Row]:
    for name in ("amazonReviewSnippets", "movieReviewSnippets", "tweets"):
        file = fetch("ratings") / f"{name}_GroundTruth.txt"
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines()[1:]:
            _, rating, text = line.split("\t")
            yield html.unescape(text), RATING_LEVELS[bisect_right(RATING_CUTS, float(rating))]


def _ticket_rows() -> Iterator[Row]:
    with (Path(__file__).parent / "tickets.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield row["text"], row["team"]


# The questions.

TREC_COARSE = {
    **{"ABBR": "abbreviation", "ENTY": "entity", "DESC": "description"},
    **{"HUM": "human", "LOC": "location", "NUM": "number"},
}
_TREC = Choice(
    "What kind of answer does the question ask for?",
    {
        "abbreviation": "a short form, or what a short form stands for",
        "entity": "a thing: an animal, food, product, event, language, word, color",
        "description": "a definition, a reason, an explanation, how something is done",
        "human": "a person, a group of people or a company",
        "location": "a city, country, mountain or other place",
        "number": "a count, date, price, distance, age or other number",
    },
)
TREC_FINE = {
    "ABBR:abb": "abbreviation",
    "ABBR:exp": "meaning of an abbreviation",
    "DESC:def": "definition",
    "DESC:desc": "description",
    "DESC:manner": "way to do something",
    "DESC:reason": "reason",
    "ENTY:animal": "animal",
    "ENTY:body": "part of the body",
    "ENTY:color": "color",
    "ENTY:cremat": "book, film, song or other creative work",
    "ENTY:currency": "currency",
    "ENTY:dismed": "disease or medicine",
    "ENTY:event": "event",
    "ENTY:food": "food or drink",
    "ENTY:instru": "musical instrument",
    "ENTY:lang": "language",
    "ENTY:letter": "letter of the alphabet",
    "ENTY:other": "other thing",
    "ENTY:plant": "plant",
    "ENTY:product": "product",
    "ENTY:religion": "religion",
    "ENTY:sport": "sport or game",
    "ENTY:substance": "substance",
    "ENTY:symbol": "symbol or sign",
    "ENTY:techmeth": "technique or method",
    "ENTY:termeq": "equivalent term",
    "ENTY:veh": "vehicle",
    "ENTY:word": "word with a special property",
    "HUM:desc": "description of a person",
    "HUM:gr": "group, company or organization",
    "HUM:ind": "person",
    "HUM:title": "title of a person",
    "LOC:city": "city",
    "LOC:country": "country",
    "LOC:mount": "mountain",
    "LOC:other": "other place",
    "LOC:state": "state",
    "NUM:code": "postal code, phone number or other code",
    "NUM:count": "number of things",
    "NUM:date": "date or year",
    "NUM:dist": "distance",
    "NUM:money": "price or amount of money",
    "NUM:ord": "rank",
    "NUM:other": "other number",
    "NUM:perc": "percentage",
    "NUM:period": "age or duration",
    "NUM:speed": "speed",
    "NUM:temp": "temperature",
    "NUM:volsize": "size, area or volume",
    "NUM:weight": "weight",
}
_TREC_FINE = Choice("What does the question ask for?", list(TREC_FINE.values()))
TREC_12 = {
    "HUM:ind": "person",
    "HUM:gr": "company",
    "LOC:city": "city",
    "LOC:country": "country",
    "LOC:other": "place",
    "NUM:count": "count",
    "NUM:date": "date",
    "DESC:def": "definition",
    "DESC:manner": "method",
    "DESC:reason": "reason",
    "ENTY:animal": "animal",
    "ENTY:food": "food",
}
_TREC_12 = Choice(
    "What does the question ask for?",
    {
        "person": "the name of a man, a woman or a fictional character",
        "company": "the name of a group, a team or an organization",
        "city": "the name of a town, a capital or a village",
        "country": "the name of a nation or a state",
        "place": "a river, a sea, a building, a planet or an address",
        "count": "how many people, animals or things there are",
        "date": "a year, a day or a century in which something happened",
        "definition": "what a word or a thing is, and what it means",
        "method": "how to do or to make something",
        "reason": "why something is so, and what causes it",
        "animal": "a mammal, a bird, a fish or an insect",
        "food": "a dish, a drink, a fruit or an ingredient",
    },
)
_SPAM = Choice(
    "What kind of text message is this?",
    {
        "spam": "advertising, a prize, a paid service or a fraud",
        "normal": "a message from a friend, a relative or a colleague",
    },
)
_IS_SPAM = Predicate(
    "The text message is spam.",
    if_true="it advertises, promises a prize, sells a paid service or tries to cheat",
    if_false="it comes from a friend, a relative or a colleague",
)
_SENTIMENT = Choice(
    "Is the review positive or negative?",
    {"positive": "the writer liked it", "negative": "the writer did not like it"},
)
_RATING = Score(
    "How positive is the text?",
    {
        "very negative": "hatred, anger, a devastating judgment",
        "negative": "dislike, disappointment, sadness",
        "neutral": "facts, or good and bad in equal parts",
        "positive": "liking, joy, approval",
        "very positive": "love, delight, enthusiasm",
    },
)
_TICKET = Choice(
    "Which support team should answer this customer?",
    {
        "billing": "charges, invoices, payment methods, refunds, the price of a current plan",
        "technical support": "errors, crashes, broken devices, how to use the product",
        "sales": "questions before a purchase: prices, quotes, discounts, which product fits",
        "shipping": "delivery, parcels, addresses, returns, damaged or missing items",
        "account access": "logging in, passwords, permissions, profiles, security of the account",
    },
)

SOURCES = {
    "trec": Source(_TREC, lambda: _trec_rows(TREC_COARSE)),
    "trec-12": Source(_TREC_12, lambda: _trec_rows(TREC_12)),
    "trec-50": Source(_TREC_FINE, lambda: _trec_rows(TREC_FINE)),
    "spam": Source(_SPAM, lambda: _spam_rows("spam", "normal"), balanced=True),
    "spam-natural": Source(_SPAM, lambda: _spam_rows("spam", "normal")),
    "spam-predicate": Source(_IS_SPAM, lambda: _spam_rows(True, False), balanced=True),
    "sentiment": Source(_SENTIMENT, _sentiment_rows),
    "ratings": Source(_RATING, _rating_rows),
    "tickets": Source(_TICKET, _ticket_rows, balanced=True, n_train=60),
}
"""All data sets by name."""
