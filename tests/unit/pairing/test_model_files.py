"""Models and training sets in files: what was written is read, and what was not does no harm."""

import io
import json
import os
import pickle
import zipfile

import contention
import numpy as np
import pytest

pytest.importorskip("sklearn", reason="the extra schedule is not installed")

from mpicoloc.core.slowdown import pair_slowdowns
from mpicoloc.errors import DataError, EnvironmentFault
from mpicoloc.pairing import arrays_file, model_file, training_sets
from mpicoloc.pairing.training.fitting import fit_kind

KINDS = (
    *("elastic net", "support vectors", "extra trees", "gradient boosting", "network"),
    *("two factors", "similar programs"),
)


@pytest.fixture(scope="module")
def learnt():
    return contention.World(8).training()


@pytest.fixture(scope="module", params=KINDS)
def model(request, learnt):
    return fit_kind(learnt, request.param)


@pytest.fixture(scope="module")
def trees(learnt):
    return fit_kind(learnt, "extra trees")


def test_a_model_that_was_written_predicts_the_same(model, learnt, tmp_path):
    path = tmp_path / "slowdowns.model"
    model_file.write(model, path)
    again = model_file.read(path)
    assert (again.card, again.machine, again.features) == (model.card, model.machine, model.features)
    for end in ("value", "low", "high"):
        found, expected = (getattr(pair_slowdowns(one, learnt.jobs), end) for one in (again, model))
        assert np.array_equal(found, expected)


def test_reading_a_model_needs_no_scikit_learn(trees, tmp_path):
    import subprocess
    import sys

    model_file.write(trees, tmp_path / "m")
    code = (
        "import sys; from mpicoloc.pairing import model_file; "
        "model_file.read(sys.argv[1]); print(*sys.modules)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "m")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert not {"sklearn", "pickle5"} & set(done.stdout.split())


def test_a_training_set_that_was_written_is_the_same(learnt, tmp_path):
    path = tmp_path / "set.npz"
    training_sets.write_file(learnt, path)
    again = training_sets.read_file(path)
    assert again.jobs == learnt.jobs
    assert again.machine == learnt.machine
    assert np.array_equal(again.rows, learnt.rows)
    with np.load(path) as arrays:  # as others read it
        assert arrays["values"].shape == (len(learnt.jobs), len(arrays["names"]))


def test_a_file_that_was_cut_or_changed_is_an_error(trees, tmp_path):
    path = tmp_path / "m"
    model_file.write(trees, path)
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for i in range(60):
        broken = bytearray(content)
        if i % 3 == 0:
            broken = broken[: int(rng.integers(len(broken)))]
        else:
            for place in rng.integers(len(broken), size=8):
                broken[place] = int(rng.integers(256))
        path.write_bytes(bytes(broken))
        try:
            model_file.read(path)  # bytes between the members are nobody's
        except DataError as error:
            assert "\n" not in str(error)


def rewritten(path, change):
    """The file with its head and arrays changed by `change(head, arrays)`."""
    with np.load(path) as found:
        arrays = {name: found[name] for name in found.files}
    head = json.loads(arrays.pop("head").tobytes())
    change(head, arrays)
    np.savez(path, head=np.frombuffer(json.dumps(head).encode(), np.uint8), **arrays)
    os.replace(f"{path}.npz", path)


def first_child(head, arrays):
    arrays["regressor.left"] = np.where(np.arange(len(arrays["regressor.left"])) == 0, 10**9, 0)


CHANGES = {
    "format": (lambda head, arrays: head.update(format="x"), "is not an mpicoloc slowdown model"),
    "version": (lambda head, arrays: head.update(version=99), "version 99"),
    "regressor": (lambda head, arrays: head.update(regressor="os.system"), "damaged"),
    "features": (lambda head, arrays: head["features"].pop(), "damaged"),
    "no features": (lambda head, arrays: head.update(features=[]), "damaged"),
    "usual": (lambda head, arrays: head.update(usual=[0.5, 0.1, 2.0]), "slowdowns that are invalid"),
    "band": (lambda head, arrays: head["band"].update(below=3.0), "interval that is invalid"),
    "card": (lambda head, arrays: head.update(card=7), "damaged"),
    "machine": (lambda head, arrays: head.update(machine={"cpu_model": 3}), "damaged"),
    "child": (first_child, "nodes that are not trees"),
    "array": (lambda head, arrays: arrays.pop("regressor.value"), "damaged"),
    "type": (lambda head, arrays: arrays.update({"regressor.left": arrays["regressor.value"]}), "damaged"),
    "shape": (lambda head, arrays: arrays.update({"regressor.base": np.zeros(3)}), "damaged"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_file_that_says_what_no_model_has_is_an_error(name, trees, tmp_path):
    change, words = CHANGES[name]
    path = tmp_path / "m"
    model_file.write(trees, path)
    rewritten(path, change)
    with pytest.raises(DataError, match=words):
        model_file.read(path)


def test_kernels_and_networks_are_checked_too(learnt, tmp_path):
    for kind, name in (
        ("support vectors", "regressor.dual"),
        ("network", "regressor.numbers"),
        ("similar programs", "regressor.dual"),
    ):
        path = tmp_path / "m"
        model_file.write(fit_kind(learnt, kind), path)
        rewritten(path, lambda head, arrays, name=name: arrays.update({name: arrays[name][:-1]}))
        with pytest.raises(DataError, match="with its shape"):
            model_file.read(path)


class Harm:
    def __reduce__(self):
        return os.mkdir, ("harmed",)


def archive(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)


def npy(array, pickled=False):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, allow_pickle=pickled)
    return buffer.getvalue()


def test_nothing_in_a_file_is_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    archive("m", head=npy(np.array([Harm()], object), pickled=True))
    (tmp_path / "p").write_bytes(pickle.dumps(Harm()))
    for name in ("m", "p"):
        with pytest.raises(DataError, match="damaged"):
            model_file.read(name)
    assert not os.path.exists("harmed")


def test_a_file_that_unfolds_to_any_size_costs_no_memory(tmp_path, monkeypatch):
    path = tmp_path / "m"
    monkeypatch.setattr(arrays_file, "MAX_BYTES", 1 << 20)
    archive(path, head=b"\0" * (arrays_file.MAX_BYTES + 1))
    with pytest.raises(DataError, match="exceed the limits"):
        model_file.read(path)
    # A header that promises more than there is.
    header = npy(np.zeros(1)).replace(b"(1,)", b"(1000000000000,)")
    archive(path, head=header)
    with pytest.raises(DataError, match=r"not there|damaged"):
        model_file.read(path)


def test_what_is_no_file_is_told(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, words in (
        ("none", "no such file"),
        (".", "is a folder|is not a file"),
        ("pipe", "is not a file"),
    ):
        with pytest.raises(DataError, match=words):
            model_file.read(tmp_path / name)
    with pytest.raises(DataError, match="damaged"):
        training_sets.read_file(__file__)


def test_a_place_that_cannot_be_written_is_told(trees, tmp_path):
    with pytest.raises(EnvironmentFault, match="cannot write"):
        model_file.write(trees, tmp_path / "nowhere" / "m")
