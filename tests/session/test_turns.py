"""The queue for slots: order, limits and timeouts."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from eliza_ffi.errors import BusyError, InvalidArgumentError
from eliza_ffi.session.turns import Turn, Turns, check_timeout


def test_the_number_of_running_callers_is_limited() -> None:
    turns, lock, running, most = Turns(3, 60.0), threading.Lock(), 0, 0

    def visit(_: int) -> None:
        nonlocal running, most
        with turns.one(None):
            with lock:
                running += 1
                most = max(most, running)
            time.sleep(0.002)
            with lock:
                running -= 1

    with ThreadPoolExecutor(12) as threads:
        list(threads.map(visit, range(60)))
    assert most == 3


def test_threads_and_tasks_run_in_the_order_of_arrival() -> None:
    turns, order = Turns(1, 60.0), []

    async def take(name: int) -> None:
        async with turns.one_async(None):
            order.append(name)

    def take_on_thread(name: int) -> None:
        with turns.one(None):
            order.append(name)

    async def all_of_them() -> None:
        loop = asyncio.get_running_loop()
        waiting = []
        async with turns.one_async(None):
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


def test_negative_waits_mean_no_wait_and_nan_is_rejected() -> None:
    turns = Turns(1, 60.0)
    with turns.one(0):
        for no_time in (-1, -0.5, float("-inf")):
            with pytest.raises(BusyError), turns.one(no_time):
                pytest.fail("the caller got a turn")
    with pytest.raises(InvalidArgumentError, match="timeout"):
        check_timeout(float("nan"))
    with turns.one(0):
        pass


def test_a_moving_queue_does_not_time_out() -> None:
    turns = Turns(1, 0.2)

    async def visit() -> None:
        async with turns.one_async(None):
            await asyncio.sleep(0.05)

    async def all_of_them() -> None:
        await asyncio.gather(*(visit() for _ in range(12)))  # the last one waits for 0.55 s

    asyncio.run(all_of_them())


def test_a_queue_that_does_not_move_times_out() -> None:
    turns = Turns(1, 0.05)

    async def both() -> None:
        async with turns.one_async(None):
            with pytest.raises(BusyError, match=r"after 0.05 s \(options n_slots, slot_wait_ms\)"):
                async with turns.one_async(None):
                    pass

    asyncio.run(both())


def test_a_cancelled_waiting_caller_does_not_block_the_queue() -> None:
    turns = Turns(1, 60.0)

    async def visit() -> None:
        async with turns.one_async(None):
            pass

    async def story() -> None:
        async with turns.one_async(None):
            first, second = asyncio.ensure_future(visit()), asyncio.ensure_future(visit())
            await asyncio.sleep(0)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
        await second

    asyncio.run(story())
    with turns.one(0):
        pass


def test_a_garbage_collected_turn_frees_its_place() -> None:
    turns = Turns(1, 60.0)
    turn = Turn(0, at_most=None, slot_id=-1)
    turns._enter(turn)
    assert turn.done()
    del turn
    gc.collect()
    with turns.one(0):
        pass


def test_callers_at_their_limit_wait_and_others_overtake_them() -> None:
    turns = Turns(4, 60.0)
    order: list[str] = []

    async def take(name: str, at_most: int | None) -> None:
        async with turns.one_async(None, at_most=at_most):
            order.append(name)
            await asyncio.sleep(0.01)

    async def all_of_them() -> None:
        async with turns.one_async(None, at_most=2), turns.one_async(None, at_most=2):
            third = asyncio.ensure_future(take("of that kind", 2))
            await asyncio.sleep(0)
            await asyncio.gather(*(take("another", None) for _ in range(5)))
            assert order == ["another"] * 5 and not third.done()
        await third

    asyncio.run(all_of_them())
    assert order[-1] == "of that kind"


def test_limited_pinned_and_other_callers_share_one_order() -> None:
    turns = Turns(1, 60.0)
    order: list[int] = []

    async def take(i: int) -> None:
        at_most, slot_id = None if i % 3 == 0 else 2, 0 if i % 4 == 0 else -1
        async with turns.one_async(None, at_most=at_most, slot_id=slot_id):
            order.append(i)

    async def all_of_them() -> None:
        async with turns.one_async(None):
            waiting = [asyncio.ensure_future(take(i)) for i in range(12)]
            await asyncio.sleep(0)
        await asyncio.gather(*waiting)

    asyncio.run(all_of_them())
    assert order == list(range(12))


def test_a_caller_at_the_limit_of_its_kind_gets_an_error() -> None:
    turns = Turns(4, 60.0)
    with turns.one(None, at_most=1):
        with pytest.raises(BusyError, match="limit of 1 running requests"), turns.one(0, at_most=1):
            pytest.fail("the caller got a turn")
        with turns.one(0):
            pass


def test_the_wait_for_a_slot_times_out() -> None:
    turns = Turns(4, 0.05)

    async def wait_in_vain(timeout: float | None) -> None:
        async with turns.one_async(timeout, slot_id=1):
            pytest.fail("the caller got a turn")

    async def story() -> None:
        async with turns.one_async(None, slot_id=1):
            for timeout, said in ((0, "request "), (0.01, "request after 0.01 s")):
                with pytest.raises(BusyError, match=f"slot 1 is in use by another {said}"):
                    await wait_in_vain(timeout)
            waiting = asyncio.ensure_future(wait_in_vain(None))
            while not waiting.done():  # turns at other slots do not extend the wait
                async with turns.one_async(None):
                    await asyncio.sleep(0.005)
            with pytest.raises(BusyError, match="slot 1 is in use"):
                await waiting

    asyncio.run(asyncio.wait_for(story(), 30))


def test_a_thread_cannot_wait_for_its_own_slot() -> None:
    turns = Turns(4, 60.0)
    with turns.one(None, slot_id=0):
        with pytest.raises(InvalidArgumentError, match="slot 0 is busy with an unfinished stream"):
            enter(turns, 0)
        with ThreadPoolExecutor(1) as other:
            assert isinstance(other.submit(enter, turns, 0).exception(), BusyError)
    enter(turns, 0)


def enter(turns: Turns, slot_id: int) -> None:
    with turns.one(0, slot_id=slot_id):
        pass


def test_a_caller_whose_slot_was_in_use_is_next_in_line() -> None:
    """Its first turn failed, because a caller that had named no slot was using the slot."""
    turns, order = Turns(2, 60.0), []

    async def take(name: str) -> None:
        async with turns.one_async(None):
            order.append(name)

    async def try_twice() -> None:
        async with turns.one_async(None, slot_id=0) as first:
            pass
        async with turns.one_async(None, slot_id=0, after=first):
            order.append("slot 0")

    async def story() -> None:
        async with turns.one_async(None):
            trying = asyncio.ensure_future(try_twice())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not trying.done() and turns.n_running == 1  # a waiting caller occupies no place
            async with turns.one_async(None):
                later = asyncio.ensure_future(take("later"))
                await asyncio.sleep(0)
            await asyncio.gather(trying, later)

    asyncio.run(story())
    assert order == ["slot 0", "later"]
