"""Serve one model over HTTP: chat, completions, embeddings and decisions.

The command ``eliza-ffi serve`` runs this server. It requires the extra ``serve``: Starlette,
uvicorn, pydantic and prometheus-client.

    settings    the settings, and which addresses require a key
    server      run uvicorn: listen, serve, shut down after a signal
    connections limit the number of connections and their idle time
    app         the routes
    chat        ``/v1/chat/completions``
    responses   ``/v1/responses``
    completions ``/v1/completions``
    embeddings  ``/v1/embeddings``
    decisions   ``/v1/decisions`` and ``/v1/systemone``
    text        write one answer: text, a structured value, a label or tool calls
    text_fields the fields of requests that concern sampling and limits on the answer
    endpoint    what endpoints share: read, queue, answer at once or as a stream
    fields      pydantic models of requests, and the error message for a wrong field
    bodies      read a request's body, within its limits
    admission   run some requests at once, queue others, reject the rest
    patience    deadlines, and clients that disconnect
    guard       keys, hosts, origins, security headers, request ids in the log
    hosts       host names and origins in settings and in headers
    refusals    errors in OpenAI's format
    metrics     metrics for Prometheus
    document    the OpenAPI document
    page        the web page
"""
