"""Recipe for Spack 1.0 and newer; packaging/README.md has the commands."""

from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class PyMpicoloc(PythonPackage):
    """Measures how much MPI jobs that share nodes slow each other down, and what the fair price is."""

    license("Apache-2.0")

    version("main")

    variant("analysis", default=False, description="compare, history, campaign, and frames in Python")
    variant("report", default=False, description="pages and pictures")
    variant("ledger", default=False, description="accounts of service units")
    variant("network", default=False, description="topologies in YAML")
    variant("exporter", default=False, description="metrics of running jobs for Prometheus")
    variant("schedule", default=False, description="fit, pair and plan")

    depends_on("c", type="build")
    depends_on("python@3.11:", type=("build", "link", "run"))
    depends_on("py-setuptools@77:", type="build")
    depends_on("py-cffi@1.16:", type=("build", "run"))
    depends_on("py-pycparser@2.21:", type="build")
    depends_on("mpi", type=("build", "link", "run"))
    depends_on("py-numpy@1.24:", type=("build", "run"))
    depends_on("py-h5py@3.8:~mpi", type=("build", "run"))
    depends_on("py-mpi4py@4.1:", type=("build", "run"))
    depends_on("py-rich@13:", type=("build", "run"))

    for _with in ("+analysis", "+schedule"):
        depends_on("py-pandas@2:", type="run", when=_with)
        depends_on("py-scipy@1.12:", type="run", when=_with)
    depends_on("py-matplotlib@3.8:", type="run", when="+report")
    depends_on("py-jinja2@3.1:", type="run", when="+report")
    depends_on("py-sqlalchemy@2:", type="run", when="+ledger")
    depends_on("py-pyyaml@6:", type="run", when="+network")
    depends_on("py-prometheus-client@0.20:", type="run", when="+exporter")
    depends_on("py-rustworkx@0.14:", type="run", when="+schedule")
    depends_on("py-scikit-learn@1.7:", type="run", when="+schedule")
    depends_on("py-threadpoolctl@3.1:", type="run", when="+schedule")

    @run_after("install")
    def build_library(self):
        """The library for the MPI of this spec; the wheels that setup.py would fetch are not to be had."""
        mpicoloc = join_path(self.prefix.bin, "mpicoloc")
        Executable(mpicoloc)("build", "--mpicc", self.spec["mpi"].mpicc)
