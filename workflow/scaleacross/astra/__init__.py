"""ASTRA-sim's input files and its binary: rendering, strict reading, running. Knows nothing of studies."""
