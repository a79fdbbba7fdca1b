"""Measure what 2,000 tags for an input cost, and how often the answers are right.

    python -m bench.tags [--shortlist 5] [--rows 60]

SmolLM2 with MiniLM answers a choice of three options about a ticket, and then a `MultiLabel` of
2,000 tags about another ticket of nearly the same length. Both have been asked before, so that the
vectors of the tags and the beginning of the prompts are known. No ticket is in the KV cache.

With `--rows`, the tags are instead the names of all 1,918 categories of ICD-10-CM, and the inputs
are terms that it lists below them: one tag is right. No tag is right for text messages.
"""

from __future__ import annotations

import argparse
import itertools
import random
from functools import partial
from xml.etree import ElementTree

from fetch_real_models import fetch

from eliza_ffi import Model
from eliza_ffi.decisions import Choice, MultiLabel

from .answers.datasets import load
from .explain import cpu_seconds

THINGS = [
    "order",
    "refund",
    "parcel",
    "password",
    "page",
    "invoice",
    "account",
    "box",
    "card",
    "address",
    "phone",
    "screen",
    "battery",
    "cable",
    "app",
    "server",
    "database",
    "printer",
    "camera",
    "router",
]
PROBLEMS = [
    "late",
    "wrong",
    "missing",
    "broken",
    "slow",
    "old",
    "new",
    "lost",
    "open",
    "closed",
    "stolen",
    "damaged",
    "expired",
    "locked",
    "blocked",
    "duplicate",
    "empty",
    "full",
    "cold",
    "loud",
]
PLACES = ("home", "office", "shop", "web", "store")
TAGS = [
    f"{problem} {thing} ({place})"
    for thing, problem, place in itertools.product(THINGS, PROBLEMS, PLACES)
]
TICKETS = (
    "My parcel with the new phone arrived at the office this morning, but the box was damaged and "
    "the screen is broken in two places. I opened it with the courier, who took pictures of it. "
    "I would like a refund, please, because I have already bought another phone in a store.",
    "I forgot the password of my account at your web shop, and now it is locked after three "
    "attempts. The page only says that I should try again later, but I need to change the address "
    "of an order that will be sent tomorrow. Can you open the account again, or change it?",
    "The invoice of my last order has the wrong address, and the card was charged two times on the "
    "same day. My bank says that only you can give back the second amount. Please send me a right "
    "invoice, and tell me when the money will be on my account again, because I need it for rent.",
    "The printer that I bought in your store last week does not connect to the router at home. The "
    "app finds it, shows a list of errors, and then the page stays empty. I have installed the new "
    "version of the app and restarted the router and the printer several times, without success.",
)
TEAM = Choice(
    "Which team should read this?",
    {
        "billing": "payments, invoices, refunds",
        "support": "the product does not work",
        "sales": "prices, new orders",
    },
)
OTHER = "This is another text."


ASKED = "Is it about this?"


def categories() -> tuple[list[str], list[tuple[str, str]]]:
    """Return the names of the categories, and terms with their category in a random order."""
    names, terms = [], []
    for category in ElementTree.parse(fetch("icd10")).getroot().findall(".//section/diag"):
        names.append(name := category.findtext("desc", ""))
        terms += [(each.text or "", name) for each in category.iterfind(".//inclusionTerm/note")]
    random.Random(0).shuffle(terms)
    return list(dict.fromkeys(names)), [row for row in terms if row[0].lower() != row[1].lower()]


def measure_answers(model: Model, n_rows: int, shortlist: int) -> None:
    names, terms = categories()
    tags = MultiLabel(ASKED, names, shortlist=shortlist)
    found = [(model.decide(term, tags)[0].value or (), right) for term, right in terms[:n_rows]]
    n_right, n_found = (
        sum(right in each for each, right in found),
        sum(len(each) for each, _ in found),
    )
    f1, n_some = 2 * n_right / (n_found + n_rows), sum(bool(each) for each, _ in found)
    print(
        f"{n_rows} terms: F1 {f1:.2f}, {n_right} of {n_found} tags are right, {n_some} have a tag"
    )
    messages = [text for text, kind in load("spam").test if kind == "normal"][: n_rows // 2]
    n_some = sum(bool(model.decide(each, tags)[0].value) for each in messages)
    print(f"{len(messages)} text messages: {n_some} have a tag")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.tags")
    add = parser.add_argument
    add("--shortlist", type=int, default=5, metavar="N")
    add("--rows", type=int, metavar="N", help="measure the answers to so many terms")
    options = parser.parse_args()
    tags = MultiLabel(ASKED, TAGS, shortlist=options.shortlist)
    with Model(fetch("smollm2"), encoder=fetch("minilm"), n_ctx=4096) as model:
        if options.rows:
            measure_answers(model, options.rows, options.shortlist)
            return
        _, first = cpu_seconds(lambda: model.decide(OTHER, tags))
        seconds = {"one": 0.0, "many": 0.0}
        for i, ticket in enumerate(TICKETS):
            for name, question in (("one", TEAM), ("many", tags)):
                model.decide(OTHER, TEAM)
                text = f"Ticket {name} {i}. {ticket}"
                decision, more = cpu_seconds(partial(model.decide, text, question))
                seconds[name] += more
            print(dict(decision[0].probabilities))
    ratio = seconds["many"] / seconds["one"]
    print(f"{len(TAGS):,} tags take {ratio:.2f} times the CPU time of one question")
    print(f"the first question about the tags took {first:.0f} s of CPU time")


if __name__ == "__main__":
    main()
