"""elizaOS's eliza-1 tasks: whole answers, in modes from free generation to strict."""
