"""A compute node has the core only: what works without the extras, and what the other verbs say there."""

import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import node_parts
import pytest
import sample

from mpicoloc import errors
from mpicoloc.profile import hdf5

ROOT = Path(__file__).resolve().parents[3]
CORE = {"numpy", "h5py", "cffi", "mpi4py", "rich"}
ABSENT = """
import importlib.abc, sys

absent = set(sys.argv[1].split(","))

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""
WITHOUT = f"""{ABSENT}
sys.argv = ["mpicoloc", *sys.argv[2:]]
from mpicoloc.cli.main import main
sys.exit(main())
"""
WRITE = f"""{ABSENT}
del sys.argv[1]
{node_parts.WRITE}"""
ALL = {library for libraries in errors.LIBRARIES.values() for library in libraries}


@pytest.fixture
def folder(tmp_path):
    """A profile, a topology in YAML, and two jobs that wait."""
    hdf5.write(sample.profile(), tmp_path / "job.h5")
    (tmp_path / "tree.yaml").write_text("topology: XGFT(2; 2,2; 1,1)\n")
    (tmp_path / "jobs.csv").write_text("id,n_cores,runtime_s\na,1,10\nb,1,10\n")
    return tmp_path


def without(libraries, folder, *argv):
    """The command where these libraries are not installed."""
    command = [sys.executable, "-c", WITHOUT, ",".join(libraries), *argv]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)


def test_the_core_is_small_and_the_table_is_what_the_extras_install():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {re.split(r"[>=]", line)[0] for line in project["dependencies"]} == CORE
    declared = project["optional-dependencies"]
    distributions = importlib.metadata.packages_distributions()

    def names(lines):
        return {re.split(r"[\[>= ;]", line)[0].lower().replace("-", "_") for line in lines}

    for extra, libraries in errors.LIBRARIES.items():
        of_libraries = {
            name.lower().replace("-", "_") for library in libraries for name in distributions[library]
        }
        assert of_libraries - {"markupsafe"} == names(declared[extra]) - {"mpicoloc"}, extra
    everything = re.search(r"mpicoloc\[(.*)\]", declared["all"][0])[1].split(",")
    assert sorted(everything) == sorted(set(errors.LIBRARIES) - {"all"})


def test_the_package_for_spack_asks_for_the_same_versions():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (ROOT / "packaging/spack/spack_repo/mpicoloc/packages/py_mpicoloc/package.py").read_text()
    compile(text, "package.py", "exec")
    theirs = dict(re.findall(r'depends_on\("py-([\w-]+)@([\d.]+):', text))
    optional = project["optional-dependencies"]
    extras_there = re.findall(r'variant\("(\w+)"', text)
    lines = [*project["dependencies"], *(line for extra in extras_there for line in optional[extra])]
    ours = dict(line.split(">=") for line in lines)
    lean = {name: version.removesuffix(".0") for name, version in ours.items()}
    assert lean.items() <= theirs.items()
    assert set(theirs) - set(lean) == {"setuptools", "pycparser"}


def test_the_recipe_for_easybuild_has_what_the_core_needs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (path,) = (ROOT / "packaging/easybuild").glob("*.eb")
    recipe = {"SOURCE_TAR_GZ": ""}
    exec(path.read_text(), recipe)
    assert path.name == f"mpicoloc-{recipe['version']}-{'-'.join(recipe['toolchain'].values())}.eb"
    listed = {name for name, *_ in recipe["dependencies"] + recipe["exts_list"]}
    bundles = {"numpy": "SciPy-bundle", "rich": "Python-bundle-PyPI"}
    needed = {line.partition(">=")[0] for line in project["dependencies"]}
    assert {bundles.get(name, name) for name in needed} <= listed


COMMANDS = "show job.h5,show --json job.h5,price job.h5,check,top --once,run --help,recover --help"


@pytest.mark.parametrize(
    "argv",
    [("preload", sys.executable), *map(str.split, f"{COMMANDS},verify --help,build --help".split(","))],
    ids=" ".join,
)
def test_what_a_node_needs_is_in_the_core(argv, folder):
    done, whole = without(ALL, folder, *argv), without((), folder, *argv)
    assert "not installed" not in done.stderr and "Traceback" not in done.stderr
    assert done.returncode == whole.returncode


@pytest.mark.parametrize(
    ("extra", "library", "argv"),
    [
        ("analysis", "pandas", ("history", ".")),
        ("analysis", "pandas", ("compare", "job.h5", "job.h5")),
        ("analysis", "scipy", ("compare", "job.h5", "job.h5")),
        ("report", "matplotlib", ("report", "job.h5", "--out", "page.html")),
        ("report", "jinja2", ("report", "job.h5", "--out", "page.html")),
        ("ledger", "sqlalchemy", ("ledger", "open", "lab", "--ledger", "l.sqlite")),
        ("export", "pandas", ("export", "job.h5", "--format", "json", "--out", "e.json")),
        ("export", "pyarrow", ("export", "job.h5", "--format", "parquet", "--out", "e")),
        ("network", "yaml", ("network", "job.h5", "--topology", "tree.yaml")),
        ("schedule", "rustworkx", ("pair", "jobs.csv", "--prior-slowdown", "1.1")),
        ("schedule", "scipy", ("pair", "jobs.csv", "--prior-slowdown", "1.1")),
        ("schedule", "sklearn", ("fit", "--profiles", ".", "--out", "m.model")),
        ("all", "shtab", ("completion", "bash")),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_a_verb_without_its_library_names_the_extra_in_one_line(extra, library, argv, folder):
    done = without([library], folder, *argv)
    assert (done.returncode, done.stdout) == (4, ""), done.stderr
    *notes, said = done.stderr.splitlines()
    assert "pip install" in said and f"[{extra}]'" in said
    assert all(line.startswith("mpicoloc: ") for line in notes)


TOPOLOGIES = {
    "none": (None, ""),
    "notation": (b"XGFT(2; 2,2; 1,1)", "network not derived: "),
    "YAML": (b"topology: XGFT(2; 2,2; 1,1)\n", "yaml, which is not installed: pip install"),
    "binary": (bytes(range(256)) * 9, "describes no topology"),
    "empty": (b"", "describes no topology"),
    "cut off": (b'SwitchName=s Nodes=n[1-\nSwitch 3 "x"\n', "network not derived: "),
    "folder": (os.mkdir, "not a regular file"),
    "pipe": (os.mkfifo, "not a regular file"),
}


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_the_core_writes_the_profile_of_a_job_whatever_its_topology_is(topology, tmp_path):
    content, words = TOPOLOGIES[topology]
    env = {**os.environ}
    if content is not None:
        path = tmp_path / "tree"
        path.write_bytes(content) if isinstance(content, bytes) else content(path)
        env["MPICOLOC_TOPOLOGY"] = str(path)
    command = [sys.executable, "-c", WRITE, ",".join(ALL), node_parts.packed(tmp_path)]
    said = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert (said.returncode, said.stderr) == (0, "")
    notes = hdf5.read(tmp_path / "job.h5").notes
    assert (words in "\n".join(notes)) and (content is None) == ("network not derived" not in str(notes))


def test_a_library_that_is_in_no_extra_is_a_fault_of_ours(folder):
    done = without(["h5py"], folder, "show", "job.h5")
    assert done.returncode == 1 and "Traceback" in done.stderr
