"""Compare structured answers with an older version and with llama-server."""
