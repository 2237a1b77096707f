"""Pure functions: snapshots to rows of styled text. No Textual, no I/O, no clock."""
