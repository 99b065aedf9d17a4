"""Serve metrics of this node's running jobs to Prometheus.

The page is http://127.0.0.1:PORT/metrics. If root starts it, it shows all jobs, otherwise only the user's
own. Set `honor_labels: true` in Prometheus, or it renames our label `job`. It ends on Ctrl-C or SIGTERM.

  mpicoloc exporter --port 9839
"""

from __future__ import annotations

import argparse
import errno
import signal
import threading

from mpicoloc import messages
from mpicoloc.cli.arguments import whole
from mpicoloc.errors import EnvironmentFault


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument(
        "--port", type=whole(0, 65535), metavar="N", default=9839, help="port; 0: any free one (default 9839)"
    )
    parser.add_argument(
        "--address",
        metavar="HOST",
        default="127.0.0.1",
        help="address to listen on; the page shows names of jobs and users, without a password "
        "(default 127.0.0.1)",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until a signal arrives."""
    from mpicoloc.job import live, metrics

    live.jobs()  # raises now if the folder or the board cannot be read
    try:
        server = metrics.serve(args.port, args.address)
    except OSError as error:
        flag = "--port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "--address"
        raise EnvironmentFault(
            f"port {args.port} of {args.address} cannot be opened ({error.strerror}): choose "
            f"another with {flag}"
        ) from None
    host = f"[{args.address}]" if ":" in args.address else args.address
    messages.note(f"metrics of this node's jobs: http://{host}:{server.server_port}/metrics")
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    ended.wait()
    server.shutdown()
    return 0
