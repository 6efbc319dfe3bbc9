"""One file per command of `fpsim`; each has a `command`. `experiments.cli` holds their table."""
