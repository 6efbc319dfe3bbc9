"""One file per command of `fpsim`; each has a `command`. `cli` holds their table."""
