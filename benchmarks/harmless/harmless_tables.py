"""Tables of `harmless.py`, and its part of the page of benchmarks."""

import tables

NAME = "harmless"
COMMAND = "python benchmarks/harmless/harmless.py --runs 1000 --seconds 10000 --publish"
COLUMNS = ["program", "what", "ranks", "threads", "runs", "changes of code", "passes", "lines masked",
           "differ"]  # fmt: skip
FORMATS = [None, None, "{:d}", "{:d}", "{:d}", "{:,d}", "{:.1e}", None, "{:d}"]
TEXT = """Programs with short inputs, under `--meter count` with a keeper that is for this and needs no
co-runner: from the first tenths of a second on, jumps to counters are put into up to 64 places of the hot
code and taken back within milliseconds, in ever other places; in each fourth run they stay. Two runs at a
time share two processors. Exit code, output and all files are compared to the letter with those of at least
four bare runs, half of them beside spinners. What differs among bare runs is masked: dates, times, memory.
*changes* counts those of all ranks of a job together as one; *passes*: of counted places."""


def row(name, found):
    masked = f"{found.get('masked_lines', 0)} of {found.get('lines', 0)}"
    return [name, found["what"], found["n_ranks"], found["n_threads"], sum(found["runs"].values()),
            found["changes"], found["passes"], masked, len(found["differences"])]  # fmt: skip


def of(programs):
    """The table as a result file has it."""
    rows = [row(name, found) for name, found in programs.items()]
    sums = [sum(each[i] for each in rows) for i in (4, 5, 6, 8)]
    rows.append(["all", None, None, None, *sums[:3], None, sums[3]])
    return {"caption": "", "columns": COLUMNS, "formats": FORMATS, "rows": rows}


def publish(results):
    """Write the result file and the page."""
    data = [{"program": name, **found} for name, found in results["programs"].items()]
    result = {"title": "Runs with code that changes all the time", "machine": results["machine"],
              "date": results["date"], "command": COMMAND, "text": [TEXT.replace("\n", " ")],
              "tables": [of(results["programs"])], "short": [], "data": data}  # fmt: skip
    tables.publish(NAME, result)
