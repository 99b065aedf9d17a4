"""python -m mpicoloc.bubble.guardian PID: ends a measured program if who measures it was killed.

It may stand still at that moment, and would for ever.
"""

from __future__ import annotations

import os
import signal
import sys

from mpicoloc.bubble.application import signal_all


def main() -> None:
    """Wait for the end of standard input, which the measuring process holds open."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    root = int(sys.argv[1])
    while os.read(0, 4096):
        pass
    signal_all(root, signal.SIGTERM)
    signal_all(root, signal.SIGCONT)


if __name__ == "__main__":
    main()
