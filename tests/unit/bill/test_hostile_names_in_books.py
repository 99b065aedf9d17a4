"""Names that users give to jobs and accounts reach SQL, shells and terminals only as text."""

import json
import shlex

import pytest
import spool_lab
from ledger_lab import SU, assert_right, write

from mpicoloc.bill import charges

NAMES = ["1'; DROP TABLE mpicoloc_accounts; --", '1" OR "1"="1', "%' OR claim LIKE '%",
         "\x1b]0;owned\x07\x1b[2Jx", "[red]x[/red] [link=http://owned]y[/link]", "x\nmpicoloc: 1 charged",
         "x\rowned", "\u202edegrahc\u2066", "%s%n{0}{x.__class__}", "\x00", "x" * 20_000, ""]  # fmt: skip


@pytest.fixture
def call(books_at, where):
    books = books_at(where, grant_su=100)

    def call(*argv):
        code, out, err = books(*argv)
        for line in (out + err).split("\n"):
            assert line.isprintable(), "no terminal is given an order"
        return code, out, err

    return call


def test_a_profiles_job_is_text(call, tmp_path, where):
    n_charged = 0
    for i, name in enumerate(NAMES):
        path = write(tmp_path, f"{i}.h5", job_id=name.replace("\x00", ""), start_unix_s=1e9 + i)
        code, out, err = call("charge", "lab", path)
        assert (code, err, len(out.splitlines())) == (0, "", 1)
        n_charged += 1
        assert call("charge", "lab", path, "--job-id", "other")[0] == 1
        assert "already charged" in call("charge", "lab", path)[1]
    assert assert_right(where)["lab"] == 100 * SU - n_charged * SU // 4
    code, out, err = call("statement", "lab")
    assert (code, err) == (0, "") and "owned" in out
    assert len(json.loads(call("statement", "lab", "--json")[1])["lines"]) == 1 + n_charged
    assert call("audit")[0] == 0


def test_words_of_the_keeper_are_text(call, where):
    for i, name in enumerate(NAMES):
        if "\x00" in name:
            continue
        assert call("grant", "lab", "1", "--note", name, "--reference", f"{i}{name}")[0] == 0
        assert call("grant", "lab", "1", "--note", name, "--reference", f"{i}{name}")[0] == 0, "once"
        assert call("open", name)[0] == 2 and call("statement", name)[0] == 2
        assert call("charge", name, "none.h5")[0] in (2, 3)
    assert call("statement", "lab")[0] == 0
    assert assert_right(where)["lab"] == (100 + len(NAMES) - 1) * SU


def test_an_account_of_slurms_is_text_and_no_command(call, tmp_path, where):
    """`sbatch -A` takes anything where Slurm does not look accounts up."""
    spool = spool_lab.make(tmp_path)
    for i, name in enumerate([*NAMES, "$(touch owned)", "x`id`", "; rm -rf ~", "physics"]):
        spool(account=name, job=100 + i)
    code, out, err = call("collect", spool.folder, "--key-file", "site.key", "--by", "account")
    assert (code, out) == (1, "")
    assert err.count("ledger open") == 1 and "`mpicoloc ledger open physics`" in err
    assert len(err.splitlines()) == len(NAMES) + 5, "a line each, and the sum"
    assert assert_right(where)["lab"] == 100 * SU


@pytest.mark.parametrize("name", ["jörg müller", "a=b", "DOMAIN\\user", "ann@lab"])
def test_names_that_directories_give_to_users_are_charged(call, tmp_path, where, name):
    spool = spool_lab.make(tmp_path)
    spool(user=name)
    words = ("collect", spool.folder, "--key-file", "site.key")
    assert f"`mpicoloc ledger open {shlex.quote(name)}`" in call(*words)[2]
    assert call("open", name, "--grant", "10")[0] == 0 and call(*words)[0] == 0
    assert assert_right(where)[name] < 10 * SU


@pytest.mark.parametrize("job_id", [*NAMES, "7-nested-12", "7-spawn-3", "7-nested-1-spawn-2", "a-nested-b"])
def test_the_number_of_a_job_is_what_stands_before_its_inner_jobs(job_id):
    found = charges.job_number(job_id)
    assert found == ("7" if job_id[:2] == "7-" else job_id)
