"""Who gets a slot, and who waits for how long."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from eliza_ffi.errors import BusyError, InvalidArgumentError
from eliza_ffi.session.turns import Turn, Turns


def test_no_more_are_inside_than_there_is_room_for() -> None:
    turns, lock, inside, most = Turns(3, 60.0), threading.Lock(), 0, 0

    def visit(_: int) -> None:
        nonlocal inside, most
        with turns.one(True):
            with lock:
                inside += 1
                most = max(most, inside)
            time.sleep(0.002)
            with lock:
                inside -= 1

    with ThreadPoolExecutor(12) as threads:
        list(threads.map(visit, range(60)))
    assert most == 3


def test_threads_and_tasks_are_let_in_in_the_order_they_came() -> None:
    turns, order = Turns(1, 60.0), []

    async def take(name: int) -> None:
        async with turns.one_async(True):
            order.append(name)

    def take_on_thread(name: int) -> None:
        with turns.one(True):
            order.append(name)

    async def all_of_them() -> None:
        loop = asyncio.get_running_loop()
        waiting = []
        async with turns.one_async(True):
            for name in range(6):
                if name % 2:
                    waiting.append(loop.run_in_executor(None, take_on_thread, name))
                else:
                    waiting.append(asyncio.ensure_future(take(name)))
                while turns.n_waiting <= name:
                    await asyncio.sleep(0.001)
        await asyncio.gather(*waiting)

    asyncio.run(all_of_them())
    assert order == list(range(6))


def test_who_does_not_wait_is_told_at_once() -> None:
    turns = Turns(1, 60.0)
    with turns.one(True):
        for wait, said in ((False, "by open streams "), (0.01, "by open streams after 0.01 s")):
            said = f"all 1 slots are in use {said}"
            with pytest.raises(BusyError, match=said), turns.one(wait):
                pass
    with turns.one(False):
        pass


def test_less_than_no_time_is_no_time_and_what_is_no_number_is_refused() -> None:
    turns = Turns(1, 60.0)
    with turns.one(False):
        for no_time in (-1, -0.5, float("-inf")):
            with pytest.raises(BusyError), turns.one(no_time):
                pytest.fail("there was a turn")
        with pytest.raises(InvalidArgumentError, match="wait"), turns.one(float("nan")):
            pytest.fail("there was a turn")
    with turns.one(False):
        pass


def test_a_queue_that_moves_is_waited_in_to_its_end() -> None:
    turns = Turns(1, 0.2)

    async def visit() -> None:
        async with turns.one_async(True):
            await asyncio.sleep(0.05)

    async def all_of_them() -> None:
        await asyncio.gather(*(visit() for _ in range(12)))  # 0.6 s for the last one

    asyncio.run(all_of_them())


def test_a_queue_that_stands_still_is_left() -> None:
    turns = Turns(1, 0.05)

    async def both() -> None:
        async with turns.one_async(True):
            with pytest.raises(BusyError, match=r"after 0.05 s \(options n_slots, slot_wait_ms\)"):
                async with turns.one_async(True):
                    pass

    asyncio.run(both())


def test_who_is_cancelled_while_waiting_holds_nobody_up() -> None:
    turns = Turns(1, 60.0)

    async def visit() -> None:
        async with turns.one_async(True):
            pass

    async def story() -> None:
        async with turns.one_async(True):
            first, second = asyncio.ensure_future(visit()), asyncio.ensure_future(visit())
            await asyncio.sleep(0)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
        await second

    asyncio.run(story())
    with turns.one(False):
        pass


def test_a_turn_that_nobody_holds_any_more_is_free() -> None:
    turns = Turns(1, 60.0)
    turn = Turn(0, alone=False, at_most=None, slot_id=-1)
    turns._enter(turn)
    assert turn.done()
    del turn
    gc.collect()
    with turns.one(False):
        pass


def test_whoever_goes_alone_waits_for_the_others_and_keeps_those_behind_out() -> None:
    turns, order, inside = Turns(3, 60.0), [], threading.Semaphore(0)
    leave = threading.Event()

    def stay() -> None:
        with turns.one(True):
            inside.release()
            leave.wait()
            order.append("first")

    def go_alone() -> None:
        with turns.one(True, alone=True):
            order.append("alone")
            time.sleep(0.01)
            order.append("still alone")

    def follow() -> None:
        with turns.one(True):
            order.append("behind")

    with ThreadPoolExecutor(4) as threads:
        threads.submit(stay)
        inside.acquire()
        done = []
        for n, visit in enumerate((go_alone, follow)):
            done.append(threads.submit(visit))
            while turns.n_waiting <= n:
                time.sleep(0.001)
        leave.set()
        for each in done:
            each.result()
    assert order == ["first", "alone", "still alone", "behind"]


def test_alone_means_alone_for_tasks_too() -> None:
    turns = Turns(2, 60.0)

    async def both() -> None:
        async with turns.one_async(True):
            with pytest.raises(BusyError):
                async with turns.one_async(0.01, alone=True):
                    pass
            async with turns.one_async(0.01):
                pass
        async with turns.one_async(False, alone=True):
            with pytest.raises(BusyError):
                async with turns.one_async(False):
                    pass

    asyncio.run(both())


def test_of_one_kind_no_more_are_inside_than_it_says_and_others_pass_them() -> None:
    turns = Turns(4, 60.0)
    order: list[str] = []

    async def take(name: str, at_most: int | None) -> None:
        async with turns.one_async(True, at_most=at_most):
            order.append(name)
            await asyncio.sleep(0.01)

    async def all_of_them() -> None:
        async with turns.one_async(True, at_most=2), turns.one_async(True, at_most=2):
            third = asyncio.ensure_future(take("of that kind", 2))
            await asyncio.sleep(0)
            await asyncio.gather(*(take("another", None) for _ in range(5)))
            assert order == ["another"] * 5 and not third.done()
        await third

    asyncio.run(all_of_them())
    assert order[-1] == "of that kind"


def test_both_kinds_are_let_in_in_the_order_they_came_where_slots_are_short() -> None:
    turns = Turns(1, 60.0)
    order: list[int] = []

    async def take(i: int) -> None:
        async with turns.one_async(True, at_most=2 if i % 3 else None):
            order.append(i)

    async def all_of_them() -> None:
        async with turns.one_async(True):
            waiting = [asyncio.ensure_future(take(i)) for i in range(12)]
            await asyncio.sleep(0)
        await asyncio.gather(*waiting)

    asyncio.run(all_of_them())
    assert order == list(range(12))


def test_who_waits_for_its_own_kind_in_vain_is_told_so() -> None:
    turns = Turns(4, 60.0)
    with turns.one(True, at_most=1):
        with pytest.raises(BusyError, match="limit of 1 running requests"), turns.one(0, at_most=1):
            pytest.fail("there was a turn")
        with turns.one(0):
            pass


def test_of_one_slot_only_one_is_inside_and_others_pass_those_who_wait_for_it() -> None:
    turns = Turns(2, 60.0)
    order: list[str] = []

    async def take(name: str, slot_id: int) -> None:
        async with turns.one_async(True, slot_id=slot_id):
            order.append(name)
            await asyncio.sleep(0.01)

    async def all_of_them() -> None:
        async with turns.one_async(True, slot_id=3):
            pinned = [asyncio.ensure_future(take(f"slot 3, {i}", 3)) for i in range(8)]
            await asyncio.sleep(0)
            await asyncio.gather(take("any slot", -1), take("slot 4", 4))
            assert sorted(order) == ["any slot", "slot 4"]
        await asyncio.gather(*pinned)

    asyncio.run(all_of_them())
    assert order[2:] == [f"slot 3, {i}" for i in range(8)]


def test_the_wait_for_a_slot_ends_when_it_was_said_to() -> None:
    turns = Turns(4, 0.05)

    async def wait_in_vain(wait: bool | float) -> None:
        async with turns.one_async(wait, slot_id=1):
            pytest.fail("there was a turn")

    async def story() -> None:
        async with turns.one_async(True, slot_id=1):
            for wait, said in ((False, "request "), (0.01, "request after 0.01 s")):
                with pytest.raises(BusyError, match=f"slot 1 is in use by another {said}"):
                    await wait_in_vain(wait)
            waiting = asyncio.ensure_future(wait_in_vain(True))
            while not waiting.done():  # others come and go, which brings the slot no nearer
                async with turns.one_async(True):
                    await asyncio.sleep(0.005)
            with pytest.raises(BusyError, match="slot 1 is in use"):
                await waiting

    asyncio.run(asyncio.wait_for(story(), 30))


def test_a_thread_that_holds_a_slot_itself_is_told_at_once() -> None:
    turns = Turns(4, 60.0)
    with turns.one(True, slot_id=0):
        with pytest.raises(InvalidArgumentError, match="slot 0 is busy with an unfinished stream"):
            enter(turns, 0)
        with ThreadPoolExecutor(1) as other:
            assert isinstance(other.submit(enter, turns, 0).exception(), BusyError)
    enter(turns, 0)


def enter(turns: Turns, slot_id: int) -> None:
    with turns.one(False, slot_id=slot_id):
        pass


def test_a_caller_that_found_its_slot_taken_is_the_next_when_another_leaves() -> None:
    """Its turn was of no use: the slot held the stream of a caller that had named none."""
    turns, order = Turns(2, 60.0), []

    async def take(name: str) -> None:
        async with turns.one_async(True):
            order.append(name)

    async def try_twice() -> None:
        async with turns.one_async(True, slot_id=0) as first:
            pass
        async with turns.one_async(True, slot_id=0, after=first):
            order.append("slot 0")

    async def story() -> None:
        async with turns.one_async(True):
            trying = asyncio.ensure_future(try_twice())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not trying.done() and turns.n_running == 1  # it occupies no place
            async with turns.one_async(True):
                later = asyncio.ensure_future(take("later"))
                await asyncio.sleep(0)
            await asyncio.gather(trying, later)

    asyncio.run(story())
    assert order == ["slot 0", "later"]
