"""Fleet and profile files: YAML <-> schema <-> domain, with file and line in every error."""
