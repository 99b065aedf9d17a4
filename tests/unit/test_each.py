"""The same work on many files, in processes that may crash."""

import os

import pytest

from mpicoloc.errors import DataError
from mpicoloc.store import each as module

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("n_open", [1, 3, 100])
def test_each_file_has_its_own_answer_however_many_are_open(tmp_path, monkeypatch, n_open):
    monkeypatch.setattr(module, "_MAX_OPEN", n_open)
    paths = [str(tmp_path / f"{i:02}.h5") for i in range(40)]
    for path in paths[:-1]:
        with open(path, "w") as file:
            file.write(path)

    def work(path, raw):
        if path.endswith("7.h5"):
            os.abort()
        if path.endswith("30.h5"):
            raise DataError(f"{path} is thirty")
        return {"said": raw.read().decode()}

    found = dict(module.each(paths, work))
    assert set(found) == set(paths)
    for path, answer in found.items():
        if path.endswith(("7.h5", "30.h5")) or path == paths[-1]:
            assert isinstance(answer, DataError) and path in str(answer)
        else:
            assert answer == {"said": path}


def test_a_process_answers_for_its_own_files_only(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_MAX_OPEN", 2)
    paths = [str(tmp_path / f"{i}.h5") for i in range(6)]
    for path in paths:
        open(path, "w").close()
    taken_over = os.getpid()

    def work(path, raw):
        if path == paths[0] and os.getpid() != taken_over:
            for handle in map(int, os.listdir("/proc/self/fd")):
                try:
                    os.write(handle, b'{"said": "forged"}\n' * 6)
                except OSError:
                    continue
            os._exit(0)
        return {"said": path}

    found = dict(module.each(paths, work))
    assert [found[path]["said"] for path in paths] == ["forged"] * 2 + paths[2:]
