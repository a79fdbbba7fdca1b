"""Serve decisions of one model over HTTP: ``/v1/decisions`` and ``/v1/systemone``.

The command ``eliza-ffi serve`` runs this server. It requires the extra ``serve``: Starlette,
uvicorn and prometheus-client.

    settings    the settings, and which addresses require a key
    server      run uvicorn: listen, serve, shut down after a signal
    connections limit the number of connections and their idle time
    app         the routes
    endpoints   the handlers of the routes
    formats     requests and responses in the two wire formats
    schemas     the JSON Schemas of requests
    fields      check requests against these schemas
    bodies      read a request's body, within its limits
    admission   run some requests at once, queue others, reject the rest
    patience    deadlines, and clients that disconnect
    guard       keys, hosts, origins, security headers, request ids in the log
    hosts       host names and origins in settings and in headers
    refusals    errors in OpenAI's format
    metrics     metrics for Prometheus
    openapi     the OpenAPI document
    page        the web page
"""
