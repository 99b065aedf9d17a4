"""The suite put together: its programs, and what is wrong with what the shim recorded of a run."""

import os
import re
from collections import Counter

import conf_programs
import conf_runs
import conf_spec
import once

# All sizes in all languages take some minutes, so they run only where MPI_CONFORMANCE=all.
ALL = os.environ.get("MPI_CONFORMANCE") == "all"
# What the shim does not or cannot do: mistakes that match, and why.
NOT_YET = {
    r": isendrecv(_c)?,.*: received": "MPICH leaves its status as it was, so what was asked for counts",
}
SITES_OF_A_PART = 500
_libraries, _programs, _cases = {}, {}, []


def library(family):
    """The `Library` of this family, made once."""
    if family.folder not in _libraries:
        _libraries[family.folder] = conf_programs.library(family)
    return _libraries[family.folder]


def all_cases():
    """Every case; the large-count forms are those of the newest MPI that may be here."""
    if not _cases:
        _cases.extend(conf_spec.read_cases())
    return _cases


def program(family, language):
    """The program of a language with its cases, compiled once."""
    key = family.folder, language
    if key not in _programs:
        lib = library(family)
        cases = lib.cases(all_cases(), language)
        built = once.value(
            family.folder / f"conformance.{language}",
            lambda: conf_programs.build(lib, language, cases, family.folder / f"conformance-{language}"),
        )
        _programs[key] = built, cases
    return _programs[key]


def parts(cases, mpi, language, size):
    """The cases of a run, in parts that the shim's table of call sites holds with room to spare."""
    found, n_sites = [[]], 0
    for case in cases:
        if size not in case.ranks or not case.is_for(mpi, language, size):
            continue
        if n_sites + case.n_sites > SITES_OF_A_PART:
            found.append([])
            n_sites = 0
        n_sites += case.n_sites + 1
        found[-1].append(case)
    return found


def expected_peers(messages):
    """Rows of the message table for {peer: [bytes, ...]}."""
    rows = Counter()
    for peer, sizes in messages.items():
        for n_bytes in sizes:
            rows[peer, n_bytes.bit_length(), "n"] += 1
            rows[peer, n_bytes.bit_length(), "bytes"] += n_bytes
    return +rows


def mistakes(seen, truth):
    """Differences between the recorded and the true counts of a case, as lines of text."""
    calls = Counter(truth.calls) + Counter(Barrier=1)
    checks = {
        "calls": (seen.calls, calls),
        "sent bytes": (seen.sent_bytes, truth.sent_bytes),
        "received bytes": (seen.recv_bytes, truth.recv_bytes),
        "sent messages": (+seen.peers, expected_peers(truth.sent)),
        "received messages": (+seen.received, expected_peers(truth.received)),
        "written bytes": (seen.counters["written_bytes"], truth.written_bytes),
        "read bytes": (seen.counters["read_bytes"], truth.read_bytes),
    }
    return [f"{what}: {_unlike(found, right)}" for what, (found, right) in checks.items() if found != right]


def _unlike(found, right):
    if not isinstance(found, Counter):
        return f"{found} recorded, {right} true"
    keys = sorted({key for key in {**found, **right} if found[key] != right[key]}, key=str)
    return ", ".join(f"{key} {found[key]} recorded, {right[key]} true" for key in keys)


def check_run(folder, names, cases, size):
    """Everything wrong in the marks of a run, as lines of text."""
    wrong = []
    for rank in range(size):
        marks = conf_runs.read_marks(folder / f"{rank}.marks", names)
        seen = {each.name: each for each in conf_runs.by_case(marks)}
        for case in cases:
            if case.name not in seen:
                wrong.append(f"{case.name}, rank {rank}: not run")
                continue
            truth = conf_spec.truth(case, rank, size, seen[case.name].tries)
            wrong += [f"{case.name}, rank {rank}: {text}" for text in mistakes(seen[case.name], truth)]
    return wrong


def unexcused(wrong, where):
    """Mistakes that `NOT_YET` does not excuse; `where` is MPI/language."""
    named = [f"{where}: {text}" for text in wrong]
    return [text for text in named if not any(re.search(pattern, text) for pattern in NOT_YET)]
