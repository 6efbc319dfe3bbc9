"""Pages of runs: figures, HTML, JSON and text in a folder."""
