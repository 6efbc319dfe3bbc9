"""What pages share: the look of figures, pictures that zoom, verdicts, and the style sheet."""
