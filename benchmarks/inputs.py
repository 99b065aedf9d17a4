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
NWCHEM = """\
start water
{memory}geometry units angstrom noautosym
{waters}end
basis
* library {basis}
end
"""
NWCHEM_TASK = """\
dft
xc b3lyp
vectors input atomic
end
task dft energy
"""

_PW = """\
&control
  calculation = {calculation}
  pseudo_dir = '{pseudo.parent}'
  outdir = '.'
  disk_io = 'none'
/
&system
  ibrav = 2, celldm(1) = 10.2, nat = 2, ntyp = 1, {bands}, nosym = .true., noinv = .true.
/
&electrons
  {electrons}
/
ATOMIC_SPECIES
Si 28.086 {pseudo.name}
ATOMIC_POSITIONS alat
Si 0.00 0.00 0.00
Si {place}
K_POINTS automatic
{points} 0 0 0
"""


def still_silicon(pseudo, n_steps):
    """For Quantum ESPRESSO: so many steps to self-consistency."""
    electrons = f"""conv_thr = 1e-60, electron_maxstep = {n_steps}, scf_must_converge = .false.
  diago_thr_init = 1e-4"""
    return _PW.format(calculation="'scf'", pseudo=pseudo, bands="ecutwfc = 40, nbnd = 20",
                      electrons=electrons, place="0.25 0.25 0.25", points="3 3 3")  # fmt: skip


def moving_silicon(pseudo, n_steps):
    """For Quantum ESPRESSO: atoms that move."""
    return _PW.format(calculation=f"'md', nstep = {n_steps}, dt = 20", pseudo=pseudo, points="2 2 2",
                      bands="ecutwfc = 20, nbnd = 8", electrons="conv_thr = 1e-7\n/\n&ions",
                      place="0.27 0.24 0.25")  # fmt: skip


CP2K = """\
&GLOBAL
  PROJECT si
  RUN_TYPE MD
  PRINT_LEVEL MEDIUM
&END GLOBAL
&MOTION
  &MD
    ENSEMBLE NVE
    STEPS {n_steps}
    TIMESTEP 0.5
    TEMPERATURE 300
  &END MD
  &PRINT
    &TRAJECTORY OFF
    &END
    &RESTART OFF
    &END
    &RESTART_HISTORY OFF
    &END
  &END PRINT
&END MOTION
&FORCE_EVAL
  METHOD Quickstep
  &DFT
    BASIS_SET_FILE_NAME BASIS_SET
    POTENTIAL_FILE_NAME GTH_POTENTIALS
    &MGRID
      CUTOFF 60
    &END MGRID
    &QS
      EPS_DEFAULT 1.0E-8
    &END QS
    &SCF
      SCF_GUESS ATOMIC
      EPS_SCF 1.0E-5
      MAX_SCF 30
      &OT
        MINIMIZER DIIS
      &END OT
      &PRINT
        &RESTART OFF
        &END
      &END PRINT
    &END SCF
    &XC
      &XC_FUNCTIONAL PADE
      &END XC_FUNCTIONAL
    &END XC
  &END DFT
  &SUBSYS
    &CELL
      ABC 5.43 5.43 5.43
    &END CELL
    &COORD
      SCALED
      Si 0.00 0.00 0.00
      Si 0.00 0.50 0.50
      Si 0.50 0.00 0.50
      Si 0.50 0.50 0.00
      Si 0.25 0.25 0.25
      Si 0.25 0.75 0.75
      Si 0.75 0.25 0.75
      Si 0.75 0.75 0.25
    &END COORD
    &KIND Si
      BASIS_SET SZV-GTH-PADE
      POTENTIAL GTH-PADE-q4
    &END KIND
  &END SUBSYS
&END FORCE_EVAL
"""

GROMACS_TOPOLOGY = """\
#include "oplsaa.ff/forcefield.itp"
#include "oplsaa.ff/spce.itp"
[ system ]
water
[ molecules ]
"""
GROMACS_RUN = """\
integrator = md
dt = 0.001
nsteps = -1
nstxout = 0
nstlog = 100000
nstenergy = 100000
coulombtype = PME
rcoulomb = 0.9
rvdw = 0.9
tcoupl = v-rescale
tc-grps = System
tau-t = 0.1
ref-t = 300
gen-vel = yes
gen-temp = 300
"""

ABINIT = """\
pp_dirpath "{folder}"
pseudos "{pseudo}"
ntypat 1  znucl 14  nsym 1
acell 3*10.2
rprim 0.0 0.5 0.5  0.5 0.0 0.5  0.5 0.5 0.0
natom 2  typat 1 1
xred 0.0 0.0 0.0  0.27 0.24 0.25
ecut 16  nband 12
ngkpt 2 2 2  nshiftk 1  shiftk 0.0 0.0 0.0
nstep 40  toldfe 1.0d-6
ionmov 6  ntime {n_steps}  dtion 20  prtgsr 0
prtwf 0  prtden 0  prteig 0  prtebands 0
"""

MEEP = """\
(set! geometry-lattice (make lattice (size 3 3 3)))
(set! resolution 16)
(set! force-complex-fields? false)
(set! geometry (list (make block (center 0 0 0) (size 1 1 1) (material (make dielectric (epsilon 12))))))
(set! sources (list (make source (src (make continuous-src (frequency 0.15))) (component Ez) (center 0 0 0))))
(set! pml-layers (list (make pml (thickness 0.5))))
(define (tell) (print "step\\n"))
(run-until (/ {n_steps} (* 2 resolution)) (lambda () (tell)))
"""

LIGGGHTS = """\
atom_style granular
atom_modify map array
boundary f f f
newton off
communicate single vel yes
units si
region box block -0.05 0.05 -0.05 0.05 0.0 0.15 units box
create_box 1 box
neighbor 0.002 bin
neigh_modify delay 0
fix m1 all property/global youngsModulus peratomtype 5.e6
fix m2 all property/global poissonsRatio peratomtype 0.45
fix m3 all property/global coefficientRestitution peratomtypepair 1 0.95
fix m4 all property/global coefficientFriction peratomtypepair 1 0.05
pair_style gran model hertz tangential history
pair_coeff * *
timestep 0.00001
fix gravi all gravity 9.81 vector 0.0 0.0 -1.0
fix floor all wall/gran model hertz tangential history primitive type 1 zplane 0.0
fix west all wall/gran model hertz tangential history primitive type 1 xplane -0.05
fix east all wall/gran model hertz tangential history primitive type 1 xplane 0.05
fix south all wall/gran model hertz tangential history primitive type 1 yplane -0.05
fix north all wall/gran model hertz tangential history primitive type 1 yplane 0.05
fix pts1 all particletemplate/sphere 15485863 atom_type 1 density constant 2500 radius constant 0.0015
fix pdd1 all particledistribution/discrete 15485867 1 pts1 1.0
region bc block -0.045 0.045 -0.045 0.045 0.005 0.145 units box
fix ins all insert/pack seed 32452843 distributiontemplate pdd1 vel constant 0. 0. -0.5 &
  insert_every once overlapcheck yes all_in yes particles_in_region 8000 region bc
fix integr all nve/sphere
thermo 10
thermo_style custom step atoms ke
run {n_steps}
"""

HPCC_BUILD = """\
tar xf hpcc_*.orig.tar.gz
cd hpcc-*/
cp {main} src/hpcc.c
sed -i 's/MPI_Address/MPI_Get_address/g; s/MPI_Type_struct/MPI_Type_create_struct/g' hpl/src/comm/HPL_packL.c
sed -e 's|^MPdir.*|MPdir=|; s|^MPinc.*|MPinc=|; s|^MPlib.*|MPlib=|; s|/usr/bin/gcc|mpicc.openmpi|' \\
    -e 's|^LAlib.*|LAlib = /usr/lib/x86_64-linux-gnu/libblas.so.3|; s|-W -Wall|-w|' \\
    hpl/setup/Make.Linux_ATHLON_CBLAS >hpl/Make.parts
make -j2 arch=parts
"""
"""For MPI 3: two names that went."""
