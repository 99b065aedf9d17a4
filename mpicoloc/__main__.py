"""``python -m mpicoloc`` is the command ``mpicoloc``."""

import sys

from mpicoloc.cli.main import main

sys.exit(main())
