"""The pipelining tutorial's program mnist_pipeline.py; `--help` says what it takes."""

import sys

from ipu.experiments.programs.mnist_pipeline import main

if __name__ == "__main__":
    sys.exit(main())
