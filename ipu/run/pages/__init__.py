"""Pages: the look of figures, pictures that zoom, templates, runs and ways side by side."""
