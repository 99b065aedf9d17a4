"""Run a module of mpicoloc with a fast start: ``python -S -P quick_start.py MODULE [argument ...]``.

A job waits until Python has started in its profile writer, its coordinator and, under ``mpicoloc run``, each
rank. So a quick start skips what they do not need: `site` (-S; 5 ms, or 10 ms after ``pip install -e``),
garbage collection during imports (10 ms), and the interpreter's shutdown (15 ms).
"""

import gc
import importlib
import os
import sys

LIBRARIES = ("numpy", "h5py", "mpi4py", "cffi")
"""Libraries that the modules run with a quick start need. `site` is skipped only if one folder contains all
of them."""


def add_packages() -> None:
    """Extend `sys.path` as `site` would, but by one folder alone if that folder contains all `LIBRARIES`."""
    own = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
    prefix = os.path.dirname(os.path.dirname(sys.executable))
    in_venv = os.path.join(
        prefix, "lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages"
    )
    is_venv = os.path.exists(os.path.join(prefix, "pyvenv.cfg"))
    sys.path.append(own)
    for folder in (own, in_venv) if is_venv else (own,):
        if all(os.path.isdir(os.path.join(folder, name)) for name in LIBRARIES):
            if folder != own:
                sys.path.append(folder)
            if is_venv:
                sys.prefix = sys.exec_prefix = prefix
            return
    import site

    site.main()


def main() -> None:
    """Run the module's `main`, and exit with its exit code."""
    gc.disable()
    add_packages()
    del sys.argv[0]
    module = importlib.import_module(sys.argv[0])
    gc.freeze()
    gc.enable()
    code = module.main()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            pass
    os._exit(code)


if __name__ == "__main__":
    main()
