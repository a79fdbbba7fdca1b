"""What of a machine Ray gave to a worker, and the model that is opened with it."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..checks import check_kind
from ..errors import LibraryLoadError, LibraryNotFoundError, ModelError, NotSupportedError
from ..model import Model

__all__ = ["Share", "load_ray", "open_worker_model", "share_of_worker", "threads_for"]


@dataclass(frozen=True)
class Share:
    """What a worker may use.

    Attributes
    ----------
    node : str
        The machine, as messages call it.
    n_threads : int
        Compute threads; 0 = nobody said how many.
    n_gpu_layers : int
        Layers to offload; -1 = all.
    """

    node: str
    n_threads: int
    n_gpu_layers: int


def load_ray() -> Any:
    """Return ``ray``.

    Raises
    ------
    NotSupportedError
        If it is not installed.
    """
    try:
        import ray
    except ImportError:
        raise NotSupportedError("Ray is not installed: pip install 'eliza-ffi[ray]'") from None
    return ray


def share_of_worker() -> Share:
    """Return what Ray gave to the actor that runs this; elsewhere nobody said."""
    ray = load_ray()
    node = socket.gethostname()
    if not ray.is_initialized():
        return Share(node, 0, -1)
    context = ray.get_runtime_context()
    node = f"{node} ({ray.util.get_node_ip_address()})"
    if context.get_actor_id() is None:
        return Share(node, 0, -1)
    given = context.get_assigned_resources()
    return Share(node, threads_for(given.get("CPU", 0.0)), -1 if given.get("GPU") else 0)


def threads_for(cpus: float) -> int:
    """Return how many threads compute on CPUs of Ray's, which may be a share of one or none."""
    return max(int(cpus), 1)


def open_worker_model(
    path: str | os.PathLike[str] | None, options: Mapping[str, Any] | None = None
) -> Model:
    """Open a model with the threads and the GPU that Ray gave.

    Parameters
    ----------
    path
        The same on every node; None = the embedded model.
    options
        More arguments of :class:`~eliza_ffi.Model`; they go before what Ray gave.

    Raises
    ------
    ModelError, LibraryNotFoundError, LibraryLoadError
        If it cannot be opened; the text names the node.
    """
    share = share_of_worker()
    if options is not None:
        check_kind("model_options", options, Mapping, "a mapping")
    settings = {
        "n_threads": share.n_threads,
        "n_gpu_layers": share.n_gpu_layers,
        **(options or {}),
    }
    try:
        return Model(path, **settings)
    except ModelError as error:
        raise ModelError(
            f"node {share.node}: {error}; every node needs the model's file, at the same path"
        ) from None
    except (LibraryNotFoundError, LibraryLoadError) as error:
        raise type(error)(f"node {share.node}: {error}") from None
