#!/usr/bin/env bash
# Verify and time the GPU kernels of the loss on this machine: benchmarks/gpu_check.sh [FOLDER]
# Needs torch, triton, numpy and pytest in the Python that PYTHON names (default: python), and nothing else: no
# installation, no network, no data. Under 4 minutes. FOLDER (default: results/benchmarks) receives gpu.csv.
# Exit status: 0 all values right, 1 a value is wrong, 2 no GPU.
set -euo pipefail
folder=$(realpath -m "${1:-"$(dirname "$0")/../results/benchmarks"}")
cd "$(dirname "$0")/.."
PYTHONPATH=. exec "${PYTHON:-python}" benchmarks/gpu_check.py "$folder" "${@:2}"
