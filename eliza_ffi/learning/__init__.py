"""Methods that learn from labelled examples.

:mod:`~eliza_ffi.learning.heads` fits classifiers to a model's hidden states, which
:mod:`~eliza_ffi.learning.rows` reads. :class:`eliza_ffi.Classifier` uses both.
:mod:`~eliza_ffi.learning.thresholds` decides which answers to trust: it certifies a probability
above which few answers are wrong, and returns sets of options that rarely miss the right one.
"""
