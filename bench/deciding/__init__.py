"""Questions about an input, here and elsewhere: deciders, cells and tables."""
