"""A job's profile in HDF5: format, facts, signature, frames. Only this package imports h5py and pandas."""
