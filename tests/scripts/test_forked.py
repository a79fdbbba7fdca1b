"""Work in a child process whose memory is limited."""

from __future__ import annotations

import mmap

from forked import Child, run_forked

LIMIT = 512


def reserve(mebibytes: int) -> mmap.mmap:
    """Return address space that takes no memory, because nothing can be written there."""
    return mmap.mmap(-1, mebibytes << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ)


def in_child(mebibytes: int) -> Child:
    def work() -> str:
        reserve(mebibytes).close()
        return "done"

    return run_forked(work, 30.0, LIMIT)


def test_a_child_may_use_its_limit_and_no_more() -> None:
    assert in_child(LIMIT // 2).report == "done"
    assert "Cannot allocate memory" in in_child(LIMIT + 1).stderr


def test_what_the_parent_uses_does_not_count() -> None:
    """A test process that has run other tests may have more than a child's whole limit."""
    with reserve(8 * LIMIT):
        test_a_child_may_use_its_limit_and_no_more()
