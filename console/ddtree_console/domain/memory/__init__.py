"""GPU memory of a launch before it starts: what it will hold, whether that fits, and what would make it fit. Pure."""
