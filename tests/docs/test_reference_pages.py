"""The pages of options and statuses agree with the library."""

from __future__ import annotations

import re

import pytest
from checkout import ROOT

from eliza_ffi import errors
from eliza_ffi._resources import header_text
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

REFERENCE = ROOT / "docs" / "reference"
OPTIONS = (REFERENCE / "options.md").read_text(encoding="utf-8")
STATUSES = (REFERENCE / "statuses.md").read_text(encoding="utf-8")
HEADER = header_text()


def test_the_page_lists_all_options_of_the_library(library: Library) -> None:
    with pytest.raises(errors.InvalidArgumentError) as error:
        Model(library=library, options={"no_such_option": "1"})
    known = str(error.value).partition("known options: ")[2].partition(" (status")[0]
    listed = re.findall(r"^\| `(\w+)` \|", OPTIONS, flags=re.MULTILINE)
    assert sorted(listed) == sorted(known.split(", "))


def test_the_page_lists_all_statuses_of_the_header() -> None:
    named = dict(re.findall(r"^\s+(ELIZA_(?:OK|ERR_\w+)) = (-?\d+)", HEADER, flags=re.MULTILINE))
    rows = re.findall(r"^\| (-?\d+) \| `(ELIZA_\w+)` \|", STATUSES, flags=re.MULTILINE)
    assert {name: number for number, name in rows} == named
    finished = re.findall(r"^\s+(ELIZA_FINISH_\w+) =", HEADER, flags=re.MULTILINE)
    assert re.findall(r"^\| `(ELIZA_FINISH_\w+)` \|", STATUSES, flags=re.MULTILINE) == finished
