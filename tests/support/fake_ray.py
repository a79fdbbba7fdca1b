"""A fake of Ray in one process. A method of an actor runs when its result is fetched."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType, SimpleNamespace
from typing import Any


class RayError(Exception):
    pass


class RayTaskError(RayError):
    def __init__(self, cause: Exception) -> None:
        super().__init__(f"a traceback, and {cause}")
        self.cause = cause


class FakeRay:
    """The part of Ray's API that the package uses.

    `asked_for` has the options of each actor, `inits` the keyword arguments of each call of `init`,
    and `resources` what an actor sees as its own.
    """

    def __init__(
        self,
        resources: Mapping[str, float] = MappingProxyType({"CPU": 8.0}),
        is_initialized: bool = False,
    ) -> None:
        self.asked_for: list[dict[str, Any]] = []
        self.inits: list[dict[str, Any]] = []
        self.resources = {"CPU": 1.0}
        self.util = SimpleNamespace(get_node_ip_address=lambda: "10.0.0.7")
        self.exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)
        self._cluster_resources = dict(resources)
        self._is_initialized = is_initialized
        self._drawn = random.Random(1)

    def is_initialized(self) -> bool:
        return self._is_initialized

    def init(self, **settings: Any) -> None:
        if settings["address"] == "nowhere":
            raise ConnectionError("there is nothing")
        if settings["address"] == "slow":
            raise Exception("it timed out")  # Ray raises a plain Exception too
        if settings["address"] == "locked":
            raise RayError("a token is missing")
        self.inits.append(settings)
        self._is_initialized = True

    def shutdown(self) -> None:
        self._is_initialized = False

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(
            get_actor_id=lambda: "an actor", get_assigned_resources=lambda: self.resources
        )

    def cluster_resources(self) -> dict[str, float]:
        return self._cluster_resources

    def remote(self, kind: type) -> Any:
        def options(**asked_for: Any) -> Any:
            def made(*arguments: Any) -> _Actor:
                self.asked_for.append(asked_for)
                return _Actor(kind(*arguments))

            return SimpleNamespace(remote=made)

        return SimpleNamespace(options=options)

    def wait(
        self, references: list[_Reference], timeout: float | None = None
    ) -> tuple[list[_Reference], list[_Reference]]:
        # With a timeout, no result is ready in time. An actor runs its methods in order.
        if timeout is not None:
            return [], references
        actor = self._drawn.choice(references).actor
        done = next(each for each in references if each.actor is actor)
        return [done], [each for each in references if each is not done]

    def get(self, reference: _Reference) -> Any:
        return reference.run()


class _Actor:
    def __init__(self, made: Any) -> None:
        self._made = made

    def __getattr__(self, method: str) -> Any:
        return SimpleNamespace(
            remote=lambda *given: _Reference(self, lambda: self._run(method, given))
        )

    def _run(self, method: str, given: tuple[Any, ...]) -> Any:
        try:
            return getattr(self._made, method)(*given)
        except Exception as error:
            raise RayTaskError(error) from error


@dataclass(eq=False)
class _Reference:
    actor: _Actor
    run: Callable[[], Any]
