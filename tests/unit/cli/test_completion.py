"""Completion of commands, flags, files and words, asked of the shells themselves."""

import shutil
import subprocess

import pytest
import terminal

from mpicoloc import config
from mpicoloc.cli import completion, main as cli
from mpicoloc.trace.export import verb

BASH = """
source ./script
while IFS= read -r line; do
    COMP_WORDS=($line); [[ $line == *" " ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
    _shtab_mpicoloc; echo "${COMPREPLY[*]}"
done
"""
CASES = {
    "mpicoloc sh": {"show"},
    "mpicoloc -q verif": {"verify"},
    "mpicoloc show --j": {"--json"},
    "mpicoloc show prof": {"profile.h5"},
    "mpicoloc report profile.h5 --figures f": {"folder"},
    "mpicoloc report profile.h5 --out prof": {"profile.h5"},
    "mpicoloc ledger ch": {"charge"},
    "mpicoloc ledger charge --key": {"--key-file"},
    "mpicoloc export profile.h5 --format p": {name for name in verb.FORMATS if name.startswith("p")},
    "mpicoloc run -n 2 --shutter-peri": {"--shutter-period-s"},
    "mpicoloc run --meter b": {"burst"},
    "mpicoloc completion z": {"zsh"},
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "profile.h5").touch()
    return tmp_path


def write_script(shell, path, capsys):
    assert cli.main(["completion", shell]) == 0
    path.write_text(capsys.readouterr().out)


def test_bash_completes(folder, capsys):
    write_script("bash", folder / "script", capsys)
    asked = "\n".join([*CASES, "mpicoloc ", "mpicoloc run -n 2 --", "mpicoloc run -n 2 bas"]) + "\n"
    command = ["bash", "--norc", "-c", BASH]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=60, check=True)
    *found, verbs, flags, programs = (set(line.split()) for line in done.stdout.splitlines())
    assert dict(zip(CASES, found, strict=True)) == CASES and done.stderr == ""
    assert verbs == set(cli.VERBS)
    assert {option.flag for option in config.OPTIONS} <= flags and "bash" in programs


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes(folder, capsys):
    write_script("fish", folder / "script", capsys)
    asked = "complete -C '{}' | string replace -r '\\t.*' '' | string join ' '\n"
    ask = "".join(asked.format(case) for case in CASES)
    command = ["fish", "--no-config", "-c", f"source ./script\n{ask}"]
    env = {"HOME": str(folder), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)
    assert done.stderr == ""
    found = [{word.rstrip("/") for word in line.split()} for line in done.stdout.splitlines()]
    assert dict(zip(CASES, found, strict=True)) == CASES


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes(folder, capsys):
    write_script("zsh", folder / "_mpicoloc", capsys)
    keys = [
        ("READY", "fpath=($PWD $fpath); autoload -Uz compinit; compinit -u -D; print LOAD''ED\n"),
        ("LOADED", "mpicoloc sh\t"),
        # What is typed before it answers breaks a completion off.
        ("mpicoloc show", "prof\t"),
        ("profile.h5", "\x15print NE''XT\n"),
        ("NEXT", "mpicoloc run --meter bu\t"),
        ("--meter burst", "\x15exit\n"),
    ]
    shown = terminal.show("zsh", "-f", "-i", env={"PS1": "READY> "}, keys=keys)
    assert shown.ever("mpicoloc show profile.h5") and shown.ever("mpicoloc run --meter burst")


def test_a_shell_that_is_not_known_is_a_wrong_call(capsys):
    assert cli.main(["completion", "sh"]) == 2 and "bash" in capsys.readouterr().err
    assert set(completion.SHELLS) == {"bash", "zsh", "fish"}
