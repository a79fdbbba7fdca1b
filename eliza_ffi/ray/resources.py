"""The resources that Ray assigns to an actor, and a model that uses them."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any

from ..checks import check_kind
from ..errors import LibraryLoadError, LibraryNotFoundError, ModelError, NotSupportedError
from ..hub import HubName, read_name
from ..model import Model


def load_ray() -> Any:
    """Import and return ``ray``; raise NotSupportedError if it is not installed."""
    try:
        import ray
    except ImportError:
        raise NotSupportedError("Ray is not installed: pip install 'eliza-ffi[ray]'") from None
    return ray


def node_name() -> str:
    """Return this machine's name and, within a Ray cluster, its address."""
    ray = load_ray()
    name = socket.gethostname()
    return f"{name} ({ray.util.get_node_ip_address()})" if ray.is_initialized() else name


def actor_resources() -> dict[str, int]:
    """Return `n_threads` and `n_gpu_layers` for the resources of the running Ray actor; empty
    outside one."""
    ray = load_ray()
    if not ray.is_initialized() or ray.get_runtime_context().get_actor_id() is None:
        return {}
    assigned = ray.get_runtime_context().get_assigned_resources()
    return {
        "n_threads": max(int(assigned.get("CPU", 0.0)), 1),
        "n_gpu_layers": -1 if assigned.get("GPU") else 0,
    }


def open_worker_model(
    path: str | os.PathLike[str] | None, options: Mapping[str, Any] | None = None
) -> Model:
    """Open a model with the threads and the GPU that Ray has assigned to the actor, unless
    `options` override them. Errors name the node."""
    if options is not None:
        check_kind("model_options", options, Mapping, "a mapping")
    settings: dict[str, Any] = {**actor_resources(), **(options or {})}
    try:
        return Model(path, **settings)
    except ModelError as error:
        is_local = path is None or not isinstance(read_name(path), HubName)
        hint = "; every node needs the model's file at the same path" if is_local else ""
        raise ModelError(f"node {node_name()}: {error}{hint}") from None
    except (LibraryNotFoundError, LibraryLoadError, NotSupportedError) as error:
        raise type(error)(f"node {node_name()}: {error}") from None
