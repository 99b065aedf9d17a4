"""The profile of one job, an HDF5 file: format, facts, signature, frames. Alone imports h5py and pandas."""
