"""Work of sweeps for tests, as functions that other processes import; as a program, a sweep under mpirun."""

import os
import sys
import time

from mpicoloc.errors import DataError
from mpicoloc.job import pool, sweep


def square(x):
    return {"square": x * x, "pid": os.getpid()}


def square_slowly(x):
    """Long enough for every process to get some of several."""
    time.sleep(0.1)
    return square(x)


def refuse_odd(x):
    if x % 2:
        raise DataError(f"{x} is odd")
    return square(x)


def die(x):
    os._exit(1)


def cases(numbers):
    return [sweep.Case({"x": str(x)}, f"key of {x}", x) for x in numbers]


def main(folder):
    """In each rank: squares of 0 to 7."""
    with pool.workers() as executor:
        if executor is None:
            return
        done = sweep.complete(cases(range(8)), square_slowly, folder, executor, print)
        print(os.getpid(), *(found["square"] for _, found in done))


if __name__ == "__main__":
    main(sys.argv[1])
