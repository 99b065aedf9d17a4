"""Input files of the programs that the benchmarks run."""

import re
from pathlib import Path

DAY = Path(__file__).resolve().parent.parent / "examples" / "slurm-day"


def lammps(box, n_steps):
    """A liquid of 4 box^3 atoms for so many steps."""
    text = (DAY / "in.lj").read_text()
    for name, value in (("box", box), ("steps", n_steps)):
        text = re.sub(rf"(?m)^variable {name} index \d+$", f"variable {name} index {value}", text)
    return text


def hpcc(n, n_ranks):
    """``hpccinf.txt`` for a matrix of n rows on one row of ranks; the first word of most lines counts."""
    text = (DAY / "hpccinf.txt").read_text()
    return re.sub(r"(?m)^\d+ Ns$", f"{n} Ns", re.sub(r"(?m)^\d+ Qs$", f"{n_ranks} Qs", text))


LAMMPS_METAL_INPUT = """\
units metal
atom_style atomic
lattice fcc 3.615
region box block 0 {box} 0 {box} 0 {box}
create_box 1 box
create_atoms 1 box
pair_style eam
pair_coeff 1 1 {potential}
velocity all create 1600.0 376847 loop geom
neighbor 1.0 bin
neigh_modify every 1 delay 5 check yes
fix 1 all nve
timestep 0.005
thermo 100
run {n_steps}
"""

NWCHEM_WATER = "O 0 0 {z:.2f}\nH 0.757 0.586 {z:.2f}\nH -0.757 0.586 {z:.2f}\n"
NWCHEM_INPUT = """\
start water
geometry units angstrom noautosym
{waters}end
basis
* library cc-pvtz
end
dft
xc b3lyp
vectors input atomic
end
task dft energy
"""

PW_INPUT = """\
&control
  calculation = 'scf'
  pseudo_dir = '{pseudo_dir}'
  outdir = '.'
  disk_io = 'none'
/
&system
  ibrav = 2, celldm(1) = 10.2, nat = 2, ntyp = 1, ecutwfc = 40, nbnd = 20, nosym = .true., noinv = .true.
/
&electrons
  conv_thr = 1e-60, electron_maxstep = {n_steps}, scf_must_converge = .false.
  diago_thr_init = 1e-4
/
ATOMIC_SPECIES
Si 28.086 {pseudo}
ATOMIC_POSITIONS alat
Si 0.00 0.00 0.00
Si 0.25 0.25 0.25
K_POINTS automatic
3 3 3 0 0 0
"""
"""Silicon, so many steps to self-consistency."""
