"""What a model says of slowdowns that were measured.

python beside.py MODEL TRAINING_SET
"""

import sys

from mpicoloc.pairing import model_file, training_sets


def compared(model, found):
    """Names of target and co-runner, the slowdown as it was measured, and as it is predicted."""
    for row in found.rows:
        target, co_runner = (found.jobs[row[end]] for end in ("target", "co_runner"))
        yield target.program, co_runner.program, row["slowdown"], model.predict(target, [co_runner])


def main(model, training_set):
    print(f"{'job':16}{'beside':16}{'measured':>10}{'predicted':>11}  95 %")
    for target, co_runner, measured, told in compared(
        model_file.read(model), training_sets.read_file(training_set)
    ):
        ends = f"{told.low:.1f} to {told.high:.1f}"
        print(f"{target:16}{co_runner:16}{measured:10.2f}{told.value:11.2f}  {ends}")


if __name__ == "__main__":
    main(*sys.argv[1:])
