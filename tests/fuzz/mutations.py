"""Random changes to a profile or a trace file, as damage or malice makes them: functions of (rng, path)."""

import functools
import os
import zlib

import h5py
import numpy as np

NUMBERS = (0, 1, -1, 2**15, 2**31 - 1, -(2**31), 2**32, 2**53, 2**63 - 1, -(2**63))
FLOATS = (np.nan, np.inf, -np.inf, -1.0, 1e308, 1e-308, 0.0)
SECRET = "of nobody's business"


def in_bytes(change):
    """A function of (rng, path) that changes the file as this one changes what it holds."""

    @functools.wraps(change)
    def changed(rng, path):
        content = bytearray(path.read_bytes())
        change(rng, content)
        path.write_bytes(content)

    return changed


@in_bytes
def bits(rng, content):
    for _ in range(int(rng.integers(1, 40))):
        content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))


def truncation(rng, path):
    os.truncate(path, int(rng.integers(path.stat().st_size)))


@in_bytes
def swap(rng, content):
    size = int(rng.integers(1, min(4096, len(content) // 2)))
    first, second = sorted(int(at) for at in rng.integers(len(content) - size, size=2))
    content[first : first + size], content[second : second + size] = (
        content[second : second + size],
        content[first : first + size],
    )


@in_bytes
def overwrite(rng, content):
    at, size = int(rng.integers(len(content))), int(rng.integers(1, 256))
    kind = int(rng.integers(3))
    content[at : at + size] = (bytes(size), b"\xff" * size, rng.bytes(size))[kind]


@in_bytes
def numbers(rng, content):
    """Sizes, counts and offsets become what makes trouble."""
    for _ in range(int(rng.integers(1, 4))):
        _put_number(rng, content, len(content))


def _put_number(rng, content, n_bytes):
    at, size = int(rng.integers(n_bytes - 8)), int(rng.choice([1, 2, 4, 8]))
    value = int(rng.choice(NUMBERS)) % (1 << 8 * size)
    content[at : at + size] = value.to_bytes(size, "little")


def longer(rng, path):
    with path.open("ab") as file:
        file.write(rng.bytes(int(rng.integers(1, 10_000))))


BYTES = (bits, truncation, swap, overwrite, numbers, longer)


def _groups(file):
    found = []
    file.visititems(lambda _, item: found.append(item) if isinstance(item, h5py.Group) else None)
    return [file, *found]


def _any(rng, items):
    items = list(items)
    return items[int(rng.integers(len(items)))]


def _member(rng, file):
    """A group and the name of one of its members, which is deleted."""
    group = _any(rng, [group for group in _groups(file) if len(group)])
    name = _any(rng, group)
    del group[name]
    return group, name


def attribute(rng, file):
    """Another value or type."""
    item = _any(rng, [group for group in _groups(file) if len(group.attrs)])
    name = _any(rng, item.attrs)
    values = (
        *NUMBERS[:9], *FLOATS, "", "x" * 70_000, "\x1b[31m\nred", b"\xff\xfe\x00\x80", [1, 2], [], ["a", "b"],
        h5py.Empty("f4"), np.float16(1), np.longdouble(2), np.complex128(1), np.void(b"opaque"), True,
        np.array([(1, 2.0)], "i4,f8"), item.ref, np.uint64(2**64 - 1), -5,
    )  # fmt: skip
    value = values[int(rng.integers(len(values)))]
    del item.attrs[name]
    item.attrs[name] = value


def missing(rng, file):
    if rng.random() < 0.5:
        item = _any(rng, [group for group in _groups(file) if len(group.attrs)])
        del item.attrs[_any(rng, item.attrs)]
    else:
        _member(rng, file)


def link(rng, file):
    """Members that are elsewhere, or nowhere."""
    group, name = _member(rng, file)
    targets = ["/etc/passwd", "/dev/zero", "pipe", ".", "other.h5"]
    kinds = (
        lambda: h5py.SoftLink(f"{group.name}/{name}".replace("//", "/")),
        lambda: h5py.ExternalLink(_any(rng, targets), "/ranks"),
        lambda: file["/"],
        lambda: np.dtype("i4"),
        lambda: h5py.SoftLink("/nowhere"),
        lambda: file.create_group(None),
    )
    group[name] = kinds[int(rng.integers(6))]()


def _table(rng, file):
    """The name of one of the file's tables, which is deleted, and its rows."""
    name = _any(rng, [name for name in file if isinstance(file[name], h5py.Dataset)])
    old = file[name][()]
    del file[name]
    return name, old


def cells(rng, file):
    """Numbers that no job has."""

    def changed(old):
        new = np.resize(old, max(1, len(old))) if rng.random() < 0.3 else old.copy()
        for _ in range(int(rng.integers(1, 4)) if len(new) else 0):
            column, row = _any(rng, new.dtype.names), int(rng.integers(len(new)))
            kind = new.dtype[column].kind
            if kind == "f":
                value = _any(rng, FLOATS)
            elif kind == "S":
                value = _any(rng, [b"", b"\xff\xfe", b"\x1b[2J", rng.bytes(40), b"a\nb", b"=1+1"])
            else:
                limits = np.iinfo(new.dtype[column])
                value = np.clip(
                    _any(rng, NUMBERS), limits.min, int(limits.max) if limits.max < 2**63 else 2**63 - 1
                )
                value = limits.max if rng.random() < 0.2 else value
            if rng.random() < 0.3:
                new[column] = value
            else:
                new[column][row] = value
        return new

    name, old = _table(rng, file)
    file.create_dataset(name, data=changed(old))


def columns(rng, file):
    """Columns of other types, with other names, fewer and more."""
    kinds = (
        "i1", "u1", "i8", "u8", "f2", "f4", "f8", "g", "c8", "S1", "S5000", "V7", ">i4", ">f8", "?",
        h5py.string_dtype(), h5py.ref_dtype, h5py.vlen_dtype("i4"), h5py.enum_dtype({"A": 1, "B": 2}),
        np.dtype(("i4", (3,))), np.dtype([("x", "i4"), ("y", "f8")]),
    )  # fmt: skip

    def changed(old):
        fields = [(name, old.dtype[name]) for name in old.dtype.names]
        at = int(rng.integers(len(fields)))
        way = int(rng.integers(4))
        if way == 0:
            del fields[at]
        elif way == 1:
            fields.append((_any(rng, ["x", "rank ", "\x1b[31m", "n" * 3000]), _any(rng, kinds)))
        else:
            fields[at] = (fields[at][0], _any(rng, kinds))
        return np.zeros(len(old), fields or [("x", "i4")])

    name, old = _table(rng, file)
    file.create_dataset(name, data=changed(old))


def shape(rng, file):
    """Sizes that are only claimed, and other shapes."""
    name, old = _table(rng, file)
    kind, way = old.dtype, int(rng.integers(7))
    if way == 0:
        file.create_dataset(
            name, (int(rng.choice([1 << 20, 1 << 28, 1 << 40, (1 << 62) - 1])),), kind, chunks=(64,)
        )
    elif way == 1:
        file.create_dataset(name, (10,), kind, chunks=(1 << 25,), maxshape=(None,))
    elif way == 2:
        file.create_dataset(name, (2, 2), kind)
    elif way == 3:
        file.create_dataset(name, (), kind)
    elif way == 4:
        file.create_dataset(name, dtype=kind, data=h5py.Empty(kind))
    elif way == 5:
        file[name] = np.zeros(3, f"S{_any(rng, [1, 1 << 20])}")
    else:
        long = h5py.h5t.create(h5py.h5t.COMPOUND, (1 << 31) - 1)
        long.insert(b"rank", 0, h5py.h5t.STD_I32LE)
        space = h5py.h5s.create_simple((0,), (h5py.h5s.UNLIMITED,))
        how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        how.set_chunk((1,))
        h5py.h5d.create(file.id, name.encode(), long, space, how)


def elsewhere(rng, file):
    """Rows that lie in another file, which only the reader may read."""
    name, old = _table(rng, file)
    kind, n = old.dtype, 40
    path = _any(rng, ["secret", "/etc/passwd", "/dev/zero", "pipe"])
    if rng.random() < 0.7:
        file.create_dataset(name, (n,), kind, external=[(path, 0, n * kind.itemsize)])
        return
    layout = h5py.VirtualLayout((n,), kind)
    layout[:] = h5py.VirtualSource(_any(rng, [path, "other.h5", "."]), name, (n,))
    file.create_virtual_dataset(name, layout)


def filters(rng, file):
    """A filter that nobody has, and one chunk that unfolds to more than it may."""
    name, old = _table(rng, file)
    how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    how.set_chunk((max(1, len(old)),))
    is_bomb = rng.random() < 0.5
    if is_bomb:
        how.set_deflate(9)
    else:
        how.set_filter(int(rng.choice([256, 305, 32001, 65000])), h5py.h5z.FLAG_OPTIONAL, (1, 2, 3))
    space = h5py.h5s.create_simple((len(old),))
    made = h5py.h5d.create(file.id, name.encode(), h5py.h5t.py_create(old.dtype, logical=True), space, how)
    if is_bomb and len(old):
        made.write_direct_chunk((0,), bomb())
    elif len(old):
        made.write_direct_chunk((0,), old.tobytes(), int(rng.integers(2)))


def bomb(n_bytes=1 << 26):
    packer = zlib.compressobj(9)
    return b"".join(packer.compress(bytes(1 << 20)) for _ in range(n_bytes >> 20)) + packer.flush()


def depth(rng, file):
    """Groups in groups, and many of them."""
    group, name = _member(rng, file)
    group = group.create_group(name)
    for i in range(int(rng.integers(1, 200))):
        group = group.create_group(f"{i}") if rng.random() < 0.9 else group
    if rng.random() < 0.3:
        others = file["interference"].require_group("alternatives")
        for i in range(int(rng.integers(50))):
            for name, value in file["interference/slowdown"].attrs.items():
                others.require_group(f"x{i}").attrs[name] = value


STRUCTURE = (
    *[cells] * 6, *[attribute] * 2, *[columns] * 2, missing, link, shape, elsewhere, filters, depth,
)  # fmt: skip


def mutate_profile(rng, path):
    """Mostly one change, up to three; their names."""
    done = []
    for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
        if rng.random() < 0.25:
            change = _any(rng, BYTES)
            if path.stat().st_size > 64:
                change(rng, path)
                done.append(change.__name__)
            break
        change = _any(rng, STRUCTURE)
        try:
            with h5py.File(path, "r+") as file:
                change(rng, file)
        except (OSError, ValueError, TypeError, KeyError, RuntimeError, AttributeError, MemoryError):
            pass  # what was done before does not allow it; what has been done of it stays
        done.append(change.__name__)
        if change in (link, elsewhere):
            break  # the next change would read what is there, and wait at a pipe itself
    return done


def mutate_trace(rng, path):
    """One to three changes; blocks whose checksum is right again, in half of the cases."""
    done = []
    for _ in range(int(rng.integers(1, 4))):
        change = _any(rng, (*BYTES, _in_block, _in_block, _in_block, _blocks))
        if path.stat().st_size > 64:
            change(rng, path)
            done.append(change.__name__)
    return done


def _split(content):
    """The blocks of a file: head and payload of each."""
    from mpicoloc.trace import node_file

    at, found = 0, []
    while at + node_file.BLOCK.itemsize <= len(content):
        head = np.frombuffer(content, node_file.BLOCK, 1, at)[0].copy()
        begin = at + node_file.BLOCK.itemsize
        at = begin + int(head["size_bytes"])
        found.append((head, bytearray(content[begin:at])))
    return found


def _joined(found):
    parts = []
    for head, payload in found:
        head["crc"], head["size_bytes"] = zlib.crc32(payload), len(payload)
        parts += [head.tobytes(), bytes(payload)]
    return b"".join(parts)


def _in_block(rng, path):
    """Changes that the checksum does not tell."""
    found = _split(path.read_bytes())
    _, payload = _any(rng, found) if found else (None, b"")
    for _ in range(int(rng.integers(1, 4))):
        if len(payload) > 8:
            _put_number(rng, payload, min(len(payload), 200))
    path.write_bytes(_joined(found))


def _blocks(rng, path):
    """Blocks again, in another order, or left out."""
    found = _split(path.read_bytes())
    chosen = rng.integers(len(found), size=int(rng.integers(1, 2 * len(found) + 1))) if found else []
    path.write_bytes(
        _joined(found[:1] + [(head.copy(), payload) for head, payload in map(found.__getitem__, chosen)])
    )
