"""A campaign of real programs: how much each one suffers beside each other one on this machine.

    python benchmarks/schedule/campaign.py --out FOLDER [--layout apart|shared] [--seconds 8] [--rounds 4]

Sizes each program so that it takes about --seconds alone, writes them into FOLDER/programs.toml, and runs
`mpicoloc campaign` on it: each program alone and beside each other one, and itself. With --layout apart every
job has one rank on a processor of its own; two of them share the memory and whatever the two processors have
in common. With --layout shared every job has two ranks on the same two processors, as in a Slurm partition
with OverSubscribe=FORCE:2. NAME:N in --programs gives a program N ranks. A second call goes on where the
first one stopped. Programs that are not installed are left out, and told.

The last line names the training set: `python benchmarks/schedule/scores.py` tells what models learn from it.
"""

import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import programs

DEFAULT = "lmp,lmp_eam,hpcc,nwchem,pw,ranks,updates,heat2d,heat2d_small,nbody"
LIMIT_S = 600


def table(program, folder, n_ranks):
    """The program's lines of the campaign's file; its input files go into a folder of their own."""
    place = folder / "inputs" / program.name
    programs.place(program, place)
    lines = {"command": list(program.argv), "n_ranks": n_ranks, "limit_s": LIMIT_S, "folder": str(place)}
    return "\n".join([f"[programs.{program.name}]", *(f"{k} = {json.dumps(v)}" for k, v in lines.items())])


def write(path, args):
    """The campaign's file, of the programs that this machine has."""
    cpus = programs.processors(2)
    places = [cpus, cpus] if args.layout == "shared" else [cpus[:1], cpus[1:]]
    told = [f"rounds = {args.rounds}", f"places = {json.dumps(places)}"]
    for word in args.programs.split(","):
        name, _, n_ranks = word.partition(":")
        launcher = programs.Launcher.find("mpirun.openmpi", places[0], n_ranks=int(n_ranks or len(places[0])))
        try:
            program = programs.prepare(name, launcher, path.parent, args.seconds)
        except LookupError as error:
            print(f"left out: {error}", file=sys.stderr)
            continue
        print(f"{name}: size {program.size}", file=sys.stderr)
        told.append(table(program, path.parent, launcher.n_ranks))
    path.write_text("\n\n".join(told) + "\n")


def mpicoloc(*words):
    command = [sys.executable, "-m", "mpicoloc", *map(str, words)]
    if (code := subprocess.run(command, env=programs.environment()).returncode) != 0:
        raise SystemExit(code)


def main():
    parser = programs.parser(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for programs, runs and profiles")
    parser.add_argument("--layout", choices=("apart", "shared"), default="apart")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each program alone (default 8)")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--programs", default=DEFAULT)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    listed = args.out.resolve() / "programs.toml"
    if listed.exists():
        print(f"goes on with {listed} as it is, whatever the other options say", file=sys.stderr)
    else:
        write(listed, args)
    mpicoloc("campaign", listed, "--out", args.out / "runs")
    print(args.out / "runs")


if __name__ == "__main__":
    main()
