"""Serve one model over HTTP: chat, completions, embeddings and decisions.

The command ``eliza-ffi serve`` runs this server. It requires the extra ``serve``: Starlette,
uvicorn, pydantic and prometheus-client.

:mod:`app` has the routes, and :mod:`server` runs them. Each family of endpoints has a module
(:mod:`chat`, :mod:`responses`, :mod:`completions`, :mod:`decisions`). A request passes the checks
of access (:mod:`guard`), is read (:mod:`request_body`), and waits in a queue (:mod:`admission`,
:mod:`deadline`).
"""
