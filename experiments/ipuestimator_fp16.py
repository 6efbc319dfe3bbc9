"""The tutorial's program ipuestimator_fp16.py; `--help` says what it takes."""

import sys

from ipu.experiments.programs.ipuestimator_fp16 import main

if __name__ == "__main__":
    sys.exit(main())
