"""Decisions over HTTP: ``/v1/decisions`` and ``/v1/systemone`` of one model.

``eliza-ffi serve`` is this room behind a command. It needs the extra ``serve``: Starlette, uvicorn
and prometheus-client.

    settings    what can be set, and which addresses may be served without a key
    server      uvicorn: from the socket to the last answer, and signals
    connections the limits of connections and of their idle time
    app         the routes
    endpoints   what each of them answers
    formats     requests and answers in the two wire formats
    schemas     the schemas of requests in the two formats
    fields      checks requests against these schemas
    bodies      reading a request's body, within its limits
    admission   who is answered now, who waits, who is refused
    patience    deadlines, and clients that go away
    guard       keys, hosts, origins, security headers, names of requests in the log
    hosts       hosts and origins as users write them and clients send them
    refusals    errors in OpenAI's form
    metrics     what Prometheus is told
    openapi     the description for machines
    page        the page for people
"""
