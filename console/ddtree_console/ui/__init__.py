"""The Textual app: screens and widgets that render snapshots."""
