"""Network and operator faults in the middle of a deployment, through the whole console and real SSH."""
