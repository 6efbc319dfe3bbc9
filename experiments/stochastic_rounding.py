"""The tutorial's program stochastic_rounding.py; `--help` says what it takes."""

import sys

from ipu.experiments.programs.stochastic_rounding import main

if __name__ == "__main__":
    sys.exit(main())
