"""Input files of the programs that the benchmarks run."""

LAMMPS_INPUT = """\
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 {box} 0 {box} 0 {box}
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 1.44 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify delay 0 every 20 check no
fix 1 all nve
thermo 100
run {n_steps}
"""

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

HPCC_INPUT = """\
HPLinpack benchmark input file
mpicoloc benchmark
HPL.out
8 device out
1 # of N
{n} Ns
1 # of NBs
80 NBs
0 PMAP
1 # of grids
1 Ps
{n_ranks} Qs
16.0 threshold
1 # of panel fact
2 PFACTs
1 # of stopping
4 NBMINs
1 # of panels
2 NDIVs
1 # of recursive
1 RFACTs
1 # of broadcast
1 BCASTs
1 # of lookahead
1 DEPTHs
2 SWAP
64 threshold
0 L1
0 U
1 Equilibration
8 alignment
#####
0 # of PTRANS N
1200
0 # of PTRANS NB
40
"""
"""``hpccinf.txt`` for a matrix of n rows on one row of ranks; the first word of most lines counts."""


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
