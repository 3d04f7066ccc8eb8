"""Periodicity: Fourier spectra over positions and residues, and linear shifts of positions."""
