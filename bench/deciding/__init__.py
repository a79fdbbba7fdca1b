"""Questions about an input, answered by various methods: deciders, cells and tables."""
