"""Periods: Fourier spectra over positions and residues, and the operator that shifts positions."""
