"""Serve one model over HTTP: chat, completions, embeddings and decisions.

The command ``eliza-ffi serve`` runs this server. It requires the extra ``serve``: Starlette,
uvicorn, pydantic and prometheus-client.
"""
