"""Headers that an earlier build left in csrc/ are not used by the next build."""

import shutil
from pathlib import Path

from mpicoloc import config
from mpicoloc.pmpi import build_shim, extension_build

CSRC = Path(__file__).resolve().parents[3] / "csrc"
STALE = "#error the option table of an earlier build\n"


def test_the_c_half_is_built_with_todays_option_table(tmp_path):
    csrc, out = tmp_path / "csrc", tmp_path / "options.so"
    shutil.copytree(CSRC, csrc)
    (csrc / "options_gen.h").write_text(STALE)
    flags = ["-fPIC", "-shared", f"-I{csrc}"]
    build_shim.compile_and_link(["cc"], flags, [csrc / "common/options.c"], out, ["-lm"], tmp_path / "kept")
    assert out.exists()
    assert (csrc / "options_gen.h").read_text() == STALE


def test_python_s_half_is_built_with_the_option_table_that_it_is_given(tmp_path, monkeypatch):
    csrc, fresh = tmp_path / "csrc", tmp_path / "fresh"
    shutil.copytree(CSRC, csrc)
    (csrc / "options_gen.h").write_text(STALE)
    fresh.mkdir()
    (fresh / "options_gen.h").write_text(config.c_table())
    monkeypatch.setattr(extension_build, "CSRC", csrc)
    ffi = extension_build.contract((str(fresh),), (str(csrc / "common/options.c"),))
    # Of the sources only the one that includes the table: enough to compile, though not to be loaded.
    assert Path(ffi.compile(tmpdir=str(tmp_path), target="_contract.*")).exists()
