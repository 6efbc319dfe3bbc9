"""Published findings, computed again: one file a claim, each with its verdict."""
