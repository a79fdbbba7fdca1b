"""Decision models, which are trained to answer questions in their own prompt format."""
