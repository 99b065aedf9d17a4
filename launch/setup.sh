# Makes .venv with mpicoloc and the extras named in $1; sourced by launch/demo and launch/test. Nothing is done again
# while what was installed is unchanged.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
extras=$1
venv=.venv

say() { echo "launch: $*" >&2; }

python=${PYTHON:-python3}
command -v "$python" >/dev/null || { say "no $python: install Python 3.11 or newer, or name one with PYTHON="; exit 4; }
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    { say "$("$python" --version) is too old: install 3.11 or newer, or name one with PYTHON="; exit 4; }
# Where nothing can be compiled, a wheel of packaging/build-wheel serves.
wheel=
or_wheel() {
    wheel=$(ls -t dist/mpicoloc-*"$(uname -m)".whl 2>/dev/null | head -1) || { say "$1, or put a wheel into dist (packaging/README.md)"; exit 4; }
}
command -v "${CC:-cc}" >/dev/null || or_wheel "no C compiler: install gcc or clang, name one with CC="
"$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(sysconfig.get_path("include") + "/pyconfig.h"))' ||
    or_wheel "no headers of $("$python" --version): install them (Debian: python3-dev)"

if ! [ -x $venv/bin/python ]; then
    say "making $venv"
    "$python" -m venv $venv || { say "python cannot make it: install the package python3-venv"; exit 4; }
fi

# What is compiled or declared; the Python files are used in place, unless a wheel has them.
stamp_of() {
    [ -z "$wheel" ] || { sha256sum "$wheel" && return; }
    find csrc -name '*_gen.h' -prune -o \( -name '*.[ch]' -o -name '*.toml' \) -print | LC_ALL=C sort |
        xargs cat pyproject.toml setup.py mpicoloc/config.py mpicoloc/core/counters.py mpicoloc/__init__.py mpicoloc/pmpi/*.py |
        sha256sum | cut -d' ' -f1
}
stamp="$(stamp_of) $(pwd -P)"
done_file=$venv/mpicoloc-$extras.stamp
# Whether an installation of these sources has all that is wanted; `test` brings what reads profiles.
is_installed() {
    local file have extra
    for file in $(grep -lxsF -- "$stamp" $venv/mpicoloc-*.stamp); do
        have=${file#"$venv/mpicoloc-"} have=,${have%.stamp},
        for extra in ${extras//,/ }; do
            [[ $have == *,$extra,* || ($have == *,test,* && $extra =~ ^(report|ledger)$) ]] || continue 2
        done
        [ -n "$wheel" ] || { [ -e mpicoloc/_lib/mpicoloc-keeper ] && [ -e mpicoloc/_lib/mpicoloc-bubble ]; } && return
    done
    return 1
}
if ! is_installed; then
    if [ -n "$wheel" ]; then
        say "installing $wheel with [$extras] into $venv, as nothing can be compiled here"
    else
        say "installing mpicoloc[$extras] into $venv: fetches packages and compiles, a minute or two"
    fi
    # Both leave what an earlier call with other extras has installed.
    by_pip() { $venv/bin/python -m pip install --quiet --disable-pip-version-check "$@" >&2; }
    # uv fetches many wheels at a time, and compiles meanwhile; where it cannot be had, or not what it needs, pip does it.
    [ -x $venv/bin/uv ] || by_pip --retries 1 uv 2>/dev/null || true
    by_uv() { $venv/bin/uv pip install --quiet --compile-bytecode --python $venv/bin/python --reinstall-package mpicoloc "$@" >&2; }
    package=(-e .)
    if [ -n "$wheel" ]; then
        package=("$wheel")
        by_pip --no-deps --force-reinstall "$wheel" || # uv would install one for another machine
            { say "$wheel does not fit this machine: install a C compiler and Python's headers"; exit 4; }
    fi
    if ! [ -x $venv/bin/uv ] || ! by_uv "${package[@]}[$extras]"; then
        say "installing with pip"
        by_pip --upgrade-strategy only-if-needed "${package[@]}[$extras]"
    fi
    rm -f $venv/mpicoloc-*.stamp
    echo "$stamp" >"$done_file"
fi
