"""Measure what 2,000 tags for an input cost, compared with one question with an encoder.

    python -m bench.tags [--shortlist 5]

SmolLM2 with MiniLM answers a choice of three options about a ticket, and then a `MultiLabel` of
2,000 tags about another ticket of nearly the same length. Both have been asked before, so that the
vectors of the tags and the beginning of the prompts are known. No ticket is in the KV cache.
"""

from __future__ import annotations

import argparse
import itertools
from functools import partial

from fetch_real_models import fetch

from eliza_ffi import Model
from eliza_ffi.decisions import Choice, MultiLabel

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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.tags")
    parser.add_argument("--shortlist", type=int, default=5, metavar="N")
    tags = MultiLabel("Is it about this?", TAGS, shortlist=parser.parse_args().shortlist)
    with Model(fetch("smollm2"), encoder=fetch("minilm"), n_ctx=4096) as model:
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
