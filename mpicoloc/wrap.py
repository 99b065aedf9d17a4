"""`python -m mpicoloc.wrap app ...`: starts a rank of the application, or the node's coordinator."""

import sys

from mpicoloc.job.wrap import main

if __name__ == "__main__":
    sys.exit(main())
