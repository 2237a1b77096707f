.PHONY: venv demo test check bench screenshots
