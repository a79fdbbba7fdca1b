"""A fake of Ray in one process. An actor runs its methods on a thread of its own."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
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

    def kill(self, actor: _Actor) -> None:
        pass


class _Actor:
    def __init__(self, made: Any) -> None:
        self._made = made
        self._thread = ThreadPoolExecutor(1)

    def __getattr__(self, method: str) -> Any:
        def remote(*given: Any) -> Any:
            future = self._thread.submit(self._run, method, given)
            return SimpleNamespace(future=lambda: future)

        return SimpleNamespace(remote=remote)

    def _run(self, method: str, given: tuple[Any, ...]) -> Any:
        try:
            return getattr(self._made, method)(*given)
        except Exception as error:
            raise RayTaskError(error) from error
