"""Python objects, text, exceptions, decimals and compression: the interpreter's own loops."""

import bz2
import collections
import decimal
import hashlib
import json
import random
import re
import zlib

from mpi4py import MPI


class Odd(Exception):
    pass


def deep(n):
    if n == 0:
        raise Odd(n)
    try:
        return deep(n - 1) + 1
    finally:
        COUNTS["left"] += 1


COUNTS = collections.Counter()


def main():
    rng = random.Random(20)
    words = ["".join(rng.choices("abcdefgh", k=rng.randrange(2, 9))) for _ in range(60000)]
    for word in words:
        COUNTS[word[::-1]] += 1
    for i in range(6000):
        try:
            deep(i % 30)
        except Odd:
            COUNTS["caught"] += 1
    text = " ".join(words)
    found = re.findall(r"\b(?:ab|cd)\w*?h\b", text)
    tree = json.loads(json.dumps({word: [i, {"x": i / 7}] for i, word in enumerate(words)}))
    packed = zlib.compress(text.encode(), 9) + bz2.compress(text.encode())
    with decimal.localcontext(decimal.Context(prec=2000)):
        root = decimal.Decimal(2).sqrt() ** 3
    digest = hashlib.md5(packed)
    for part in (repr(sorted(tree.items())), str(root), str(3**20000), repr(sorted(found))):
        digest.update(part.encode())
    print(digest.hexdigest(), COUNTS["caught"], COUNTS["left"], sum(map(hash, range(10**6))))
    print(MPI.COMM_WORLD.allreduce(len(found)))


main()
