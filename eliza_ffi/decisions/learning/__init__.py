"""Methods that learn from labelled examples.

:mod:`.fitting` fits a :mod:`.calibration` to examples, and :mod:`.report` evaluates one.
:mod:`.heads` fits classifiers to hidden states.
:mod:`.thresholds` decides which answers to trust: it certifies a probability above which few
answers are wrong, and returns sets of options that rarely miss the right one.
"""
