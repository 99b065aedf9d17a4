"""Files: the HDF5 profile, and its tables as pandas frames. The only home of h5py and pandas."""
