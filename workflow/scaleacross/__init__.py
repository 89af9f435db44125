"""ScaleAcross Explorer: which training design to run when one data centre is not enough."""

__version__ = "0.1.0"
