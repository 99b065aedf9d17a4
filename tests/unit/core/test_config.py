"""The option table: every row can be read, bad values are refused, C sees the same rows."""

import re
import subprocess

import pytest

from mpicoloc import config
from mpicoloc.errors import UsageError
from mpicoloc.pmpi import build_shim


def test_defaults_pass_their_own_check():
    assert config.validate({}) == {option.key: option.default for option in config.OPTIONS}


@pytest.mark.parametrize("option", config.OPTIONS + config.SITE_OPTIONS, ids=lambda option: option.key)
def test_a_row_is_complete(option):
    assert re.fullmatch(r"MPICOLOC_[A-Z_]+", option.env)
    assert option.flag == "--" + option.env.removeprefix("MPICOLOC_").lower().replace("_", "-")
    assert re.fullmatch(r"[A-Za-z0-9|,.]+", option.metavar)
    assert option.help and not option.help.endswith(".")
    assert option.default is None or isinstance(option.default, option.type)
    if option.default is not None:
        text = str(int(option.default)) if option.type is bool else str(option.default)
        assert config.get(option.key, {option.env: text}) == option.default


def test_keys_variables_and_flags_are_unique():
    rows = config.OPTIONS + config.SITE_OPTIONS
    keys = [option.key for option in rows]
    names = [name for option in rows for name in (option.env, option.flag)]
    assert len(set(keys)) == len(keys) and len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("env", "text"),
    [
        ("MPICOLOC_SHUTTER_PERIOD_S", "fast"),
        ("MPICOLOC_SHUTTER_PERIOD_S", "-1"),
        ("MPICOLOC_SHUTTER_PERIOD_S", "nan"),
        ("MPICOLOC_SHUTTER_PERIOD_S", "inf"),
        ("MPICOLOC_SHUTTER_MAX_S", "60"),
        ("MPICOLOC_SHUTTER_DUTY_FRAC", "2"),
        ("MPICOLOC_SHUTTER_ADAPT", "maybe"),
        ("MPICOLOC_METER", "sundial"),
        ("MPICOLOC_TRACE", "1.5"),
        ("MPICOLOC_TRACE", "-5"),
        ("MPICOLOC_RATE_SU", "cheap"),
        ("MPICOLOC_BUBBLE_LEVELS", "2,high"),
        ("MPICOLOC_BUBBLE_LEVELS", "0"),
        ("MPICOLOC_BUBBLE_LEVELS", "8.5"),
        ("MPICOLOC_BUBBLE_LEVELS", "4 ,2"),
        ("MPICOLOC_BUBBLE_CORES", "all"),
    ],
)
def test_a_bad_value_is_refused_with_name_and_value(env, text):
    with pytest.raises(UsageError) as caught:
        config.validate({env: text})
    assert env in str(caught.value) and text in str(caught.value)


def test_a_word_may_stand_for_a_number():
    assert config.get("trace", {"MPICOLOC_TRACE": "all"}) == -1
    with pytest.raises(UsageError, match="a whole number or all"):
        config.get("trace", {"MPICOLOC_TRACE": "some"})


def test_an_empty_variable_counts_as_unset():
    assert config.get("meter", {"MPICOLOC_METER": ""}) == "auto"


def test_flags_become_variables_and_are_checked():
    assert config.flags_to_env({"meter": "burst", "out": None, "shutter.adapt": "no"}) == {
        "MPICOLOC_METER": "burst",
        "MPICOLOC_SHUTTER_ADAPT": "0",
    }
    with pytest.raises(UsageError, match="--rate-su"):
        config.flags_to_env({"price.rate_su": "x"})


def test_misspelt_variables_are_found():
    env = {"MPICOLOC_METRE": "ipc", "MPICOLOC_METER": "ipc", "HOME": "/"}
    env |= dict.fromkeys(config.SITE_ENVS, "/p/12.0.h5")
    assert config.unknown_variables(env) == ["MPICOLOC_METRE"]


def test_c_reads_the_same_table(tmp_path):
    (tmp_path / "options_gen.h").write_text(config.c_table())
    (tmp_path / "print.c").write_text(
        '#include <stdio.h>\n#include "common/options.h"\n'
        "int main(void) { for (int i = 0; i < MC_N_OPTIONS; i++) { const char *text = mc_option_text(i);\n"
        'printf("%s %.17g\\n", text ? text : "-", mc_option_number(i)); } }\n'
    )
    csrc = build_shim.csrc_dir()
    sources = [tmp_path / "print.c", csrc / "common/options.c"]
    program = tmp_path / "print"
    command = ["cc", "-Wall", "-Wextra", "-o", program, f"-I{tmp_path}", f"-I{csrc}", *sources]
    subprocess.run(command, check=True, timeout=60)
    rows = [row for row in config.OPTIONS if row.in_c]

    def read(env):
        done = subprocess.run([program], env=env, capture_output=True, text=True, check=True, timeout=10)
        return list(zip(rows, (line.rsplit(" ", 1) for line in done.stdout.splitlines()), strict=True))

    for option, (text, _) in read({}):
        assert (text == "-") == (option.default is None)
        assert option.default is None or config.get(option.key, {option.env: text}) == option.default
    numbers = [row for row in rows if row.type in (int, float)]
    for words, value in ((config._TRUE, 1.0), (config._FALSE, 0.0)):
        for word in (*words, words[-1].upper()):
            for option, (_, number) in read({row.env: word for row in rows if row.type is bool}):
                assert option.type is not bool or float(number) == value
    for text in ("x", "", " ", "2.5x", "nan", "inf", "0.5"):
        whole = [row for row in rows if row.type in (bool, int)]
        for option, (_, number) in read({row.env: text for row in whole}):
            assert option not in whole or float(number) == option.default
    for bound, step in (("minimum", -1), ("maximum", 1)):
        for option, (_, number) in read({row.env: f"{getattr(row, bound):.17g}" for row in numbers}):
            assert option not in numbers or float(number) == getattr(option, bound)
        for option, (_, number) in read({row.env: f"{getattr(row, bound) + step:.17g}" for row in numbers}):
            assert option not in numbers or float(number) == option.default, "a bad value is not set"
