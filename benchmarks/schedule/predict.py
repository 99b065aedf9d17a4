"""How long it takes to predict all ordered pairs of many jobs, by each kind of model, beside scikit-learn.

  python benchmarks/schedule/predict.py [--json] [--jobs 50 250 1000] [--rows 400] [--features 168]

Models are fitted to `--rows` slowdowns of made-up programs with `--features` features each (as many as a
profile has) and their usual parameters, forests with 50 trees. predict_s is `pair_slowdowns`, with intervals;
sklearn_s the same pairs through the estimator's own `predict` in one batch. All on one processor.
"""

import os

# Before NumPy starts its threads.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import json
import sys
import tempfile
import time

import numpy as np

from mpicoloc.core.features import JobFeatures
from mpicoloc.core.slowdown import pair_slowdowns
from mpicoloc.pairing import intervals, model_file
from mpicoloc.pairing.fitted import FittedModel, matrix
from mpicoloc.pairing.preparation import prepare
from mpicoloc.pairing.training import regressors


def main():
    args = arguments()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rows = [row for name in regressors.KINDS for row in rows_of(name, args)]
    if args.json:
        json.dump(rows, sys.stdout, indent=1)
        print()
        return
    print("| model | jobs | predict_s | sklearn_s | file_bytes |\n| --- | --- | --- | --- | --- |")
    for row in rows:
        print("| {kind} | {n_jobs} | {predict_s:.3f} | {sklearn_s:.3f} | {file_bytes:,} |".format(**row))


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="a list of rows")
    parser.add_argument("--jobs", type=int, nargs="+", default=[50, 250, 1000])
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--features", type=int, default=168)
    return parser.parse_args()


def jobs_like(n, n_features, rng):
    """Jobs whose features scatter over decades."""
    values = rng.lognormal(0, 1, (n, n_features))
    return [
        JobFeatures(f"{i}", f"app{i}", 100.0, 4, 4, {f"f{k}": x for k, x in enumerate(row)})
        for i, row in enumerate(values)
    ]


def rows_of(name, args):
    rng = np.random.default_rng(0)
    kind, names = regressors.KINDS[name], tuple(f"f{k}" for k in range(args.features))
    known = matrix(jobs_like(20, args.features, rng), names)
    i, j = rng.integers(0, 20, (2, args.rows))
    slowdown = 1 + np.maximum(0, np.log1p(known[i, 0] * known[j, 1])) * rng.lognormal(0, 0.05, args.rows)
    preparation = prepare(known) if kind.is_prepared else None
    x = known if preparation is None else preparation.apply(known)
    usual = dict(kind.usual) | ({"n_estimators": 50} if "n_estimators" in kind.usual else {})
    estimator = regressors.fit(kind, usual, 0, np.hstack([x[i], x[j]]), slowdown, np.ones(args.rows))
    band = intervals.Band(0.01, 0.1, -2.0, 2.0)
    model = FittedModel(
        name, names, kind.arrays(estimator), preparation, band, (1.5, 1.0, 3.0), slowdown.max(), args.rows
    )
    with tempfile.TemporaryDirectory() as folder:
        model_file.write(model, os.path.join(folder, "m"))
        file_bytes = os.path.getsize(os.path.join(folder, "m"))
    for n_jobs in args.jobs:
        jobs = jobs_like(n_jobs, args.features, rng)
        begin = time.process_time()
        pair_slowdowns(model, jobs)
        middle = time.process_time()
        by_itself(estimator, preparation, matrix(jobs, names))
        yield {
            "kind": name,
            "n_jobs": n_jobs,
            "predict_s": middle - begin,
            "sklearn_s": time.process_time() - middle,
            "file_bytes": file_bytes,
        }


def by_itself(estimator, preparation, features):
    """All pairs as rows of one matrix, in pieces that fit into memory."""
    x = features.astype(np.float32) if preparation is None else preparation.apply(features)
    for these in np.array_split(x, max(1, len(x) // 50)):
        estimator.predict(np.hstack([np.repeat(these, len(x), axis=0), np.tile(x, (len(these), 1))]))


if __name__ == "__main__":
    main()
