"""Questions about block-scaled formats."""
