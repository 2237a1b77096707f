"""Memory of a launch: references, properties, levers, bad input, what starts taught."""
