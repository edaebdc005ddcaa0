"""Sweeps of balanza's simulator on a Dask cluster."""
