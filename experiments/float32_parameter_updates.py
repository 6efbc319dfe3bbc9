"""The tutorial's program float32_parameter_updates.py; `--help` says what it takes."""

import sys

from ipu.experiments.programs.float32_parameter_updates import main

if __name__ == "__main__":
    sys.exit(main())
