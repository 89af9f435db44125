#!/usr/bin/env bash
# Run by Snakemake in the new environment, from the workflow's working directory. Only the schema and protolib of
# mlc-chakra are used, so it comes without its dependencies.
set -euo pipefail
python -m pip install --constraint constraints.txt --no-deps mlc-chakra
python -c 'import tomllib; print("\n".join(d for d in tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"] if "chakra" not in d))' \
    | python -m pip install --constraint constraints.txt --requirement /dev/stdin
python -m pip install --no-deps .
