"""Serve one model over HTTP: chat, completions, embeddings and decisions.

The command ``eliza-ffi serve`` runs this server. It requires the extra ``serve``: Starlette,
uvicorn, pydantic and prometheus-client.

:mod:`app` has the routes. Each family of endpoints has a module (:mod:`chat`, :mod:`responses`,
:mod:`completions`, :mod:`embeddings`, :mod:`decisions`). Requests pass the checks of access
(:mod:`guard`, :mod:`hosts`), are read (:mod:`bodies`, :mod:`fields`), and wait in a queue
(:mod:`admission`, :mod:`patience`).
"""
