"""A campaign of real programs: how much each one suffers beside each other one on this machine.

    python benchmarks/campaign.py --out FOLDER [--seconds 8] [--rounds 2] [--programs lmp,hpcc,...]

Sizes each program so that it takes about --seconds alone, writes them into FOLDER/programs.toml, and runs
`mpicoloc campaign` on it: each program alone and beside each other one, and itself. Every job has one rank on
a processor of its own; what two of them share is the memory and whatever the two processors have in common.
A second call goes on where the first one stopped. Programs that are not installed are left out, and told.

The last line names the training set: `python benchmarks/scores.py` tells what models learn from it.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import programs

DEFAULT = "lmp,lmp_eam,hpcc,nwchem,pw,ranks,updates,heat2d,heat2d_small,nbody"
LIMIT_S = 600


def table(program, folder):
    """The program's lines of the campaign's file; its input files go into a folder of their own."""
    place = folder / "inputs" / program.name
    programs.place(program, place)
    lines = {"command": list(program.argv), "n_ranks": 1, "limit_s": LIMIT_S, "folder": str(place)}
    return "\n".join([f"[programs.{program.name}]", *(f"{k} = {json.dumps(v)}" for k, v in lines.items())])


def write(path, args, launcher):
    """The campaign's file, of the programs that this machine has."""
    told = [f"rounds = {args.rounds}", f"places = {json.dumps([[cpu] for cpu in programs.processors(2)])}"]
    for name in args.programs.split(","):
        try:
            program = programs.prepare(name, launcher, path.parent, args.seconds)
        except LookupError as error:
            print(f"left out: {error}", file=sys.stderr)
            continue
        print(f"{name}: size {program.size}", file=sys.stderr)
        told.append(table(program, path.parent))
    path.write_text("\n\n".join(told) + "\n")


def mpicoloc(*words):
    command = [sys.executable, "-m", "mpicoloc", *map(str, words)]
    if (code := subprocess.run(command, env=programs.environment()).returncode) != 0:
        raise SystemExit(code)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for programs, runs and profiles")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each program alone (default 8)")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--programs", default=DEFAULT)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    listed = args.out.resolve() / "programs.toml"
    if not listed.exists():
        launcher = programs.Launcher.find("mpirun.openmpi", programs.processors(1), n_ranks=1)
        write(listed, args, launcher)
    mpicoloc("campaign", listed, "--out", args.out / "runs")
    print(args.out / "runs")


if __name__ == "__main__":
    main()
