"""Files of a trace as csrc/trace/tracer.c writes them, written once more, from any events."""

from __future__ import annotations

import json
import zlib

import numpy as np

from mpicoloc.trace import node_file

NAMES = ["", "MPI_Send", "MPI_Recv", "MPI_Waitall", "MPI_Barrier"]
SEND, RECV, WAITALL, BARRIER = range(1, 5)


def block(kind, payload, version=node_file.VERSION):
    payload += bytes(-len(payload) % 8)
    head = np.array((node_file.MAGIC, version, kind, len(payload), zlib.crc32(payload)), node_file.BLOCK)
    return head.tobytes() + payload


def head(job_id=b"42", hostname=b"n1", n_ranks=2, t_init=1000, start_ns=1_700_000_000 * 10**9):
    return block(
        node_file.HEAD,
        np.array((job_id, hostname, n_ranks, 1, start_ns, t_init), node_file.FILE_HEAD).tobytes(),
    )


def names():
    text = json.dumps(NAMES).encode()
    return block(node_file.CALLS, text + b" " * (-len(text) % 8))


def _column(values, width):
    values = np.asarray(values, np.uint64)
    wide = np.flatnonzero(values >= np.uint64(1) << np.uint64(8 * width)) if width < 8 else np.zeros(0, int)
    narrow = values.copy()
    narrow[wide] = 0
    raw = narrow.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width].tobytes()
    return (width, len(wide)), raw + values[wide].astype("<u8").tobytes() + wide.astype("<u4").tobytes()


def payload(rank, t_ns, duration_ns, n_bytes, peer, call, i_site=None, widths=(3, 2, 1, 1)):
    t = np.asarray(t_ns, np.int64)
    steps = np.diff(t, prepend=t[0])
    t_step = min(int(steps.min()), 0)
    kinds = np.zeros(len(t), node_file.KIND)
    kinds["peer"], kinds["call"], kinds["i_site"] = peer, call, 0 if i_site is None else i_site
    kinds, kind = np.unique(kinds, return_inverse=True)
    given = (np.broadcast_to(values, t.shape) for values in (duration_ns, n_bytes))
    columns = [(steps - t_step).astype(np.uint64), *given, kind]
    parts = [_column(values, width) for values, width in zip(columns, widths, strict=True)]
    chunk = np.zeros((), node_file.CHUNK)
    chunk["rank"], chunk["n"], chunk["n_kinds"] = rank, len(t), len(kinds)
    chunk["t_first"], chunk["t_min"], chunk["t_max"], chunk["t_step"] = t[0], t.min(), t.max(), t_step
    chunk["columns"] = [part[0] for part in parts]
    return chunk.tobytes() + kinds.tobytes() + b"".join(part[1] for part in parts)


def events(*arguments, **options):
    return block(node_file.EVENTS, payload(*arguments, **options))
