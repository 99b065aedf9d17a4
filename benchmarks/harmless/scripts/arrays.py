"""Linear algebra, transforms and sorting with NumPy and SciPy; prints a digest of every result."""

import hashlib

import numpy as np
import scipy.integrate
import scipy.optimize
import scipy.sparse.linalg
from mpi4py import MPI


def tell(name, array):
    print(name, hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest(), flush=True)


def main():
    rng = np.random.default_rng(20)
    for i in range(3):
        a = rng.standard_normal((500, 500))
        tell("solve", np.linalg.solve(a, a.T))
        tell("svd", np.linalg.svd(a[:200], compute_uv=False))
        tell("fft", np.fft.fft2(a))
        tell("sort", np.sort(rng.integers(0, 1 << 40, 500000)))
        tell("exp", np.exp(-a) + np.sin(a) ** 3)
        sparse = scipy.sparse.random(2000, 2000, 0.002, random_state=i) + 10 * scipy.sparse.eye(2000)
        tell("sparse", scipy.sparse.linalg.spsolve(sparse.tocsc(), np.ones(2000)))
    solved = scipy.integrate.solve_ivp(lambda t, y: [y[1], (1 - y[0] ** 2) * y[1] - y[0]], (0, 40), [2, 0],
                                       rtol=1e-9)  # fmt: skip
    tell("ode", solved.y)
    found = scipy.optimize.minimize(scipy.optimize.rosen, rng.standard_normal(12), method="BFGS")
    tell("minimum", found.x)
    print(MPI.COMM_WORLD.allreduce(int(found.nit)))


main()
