#!/usr/bin/env bash
# Makes the virtual environment of the benchmarks' peers from requirements.txt. Safe to run twice.
#   PYTHON   interpreter to use (default: /usr/bin/python3; the list is pinned for Python 3.11)
#   VENV     where (default: tests/bench/.venv)
set -euo pipefail
cd "$(dirname "$0")"
python=${PYTHON:-/usr/bin/python3}
venv=${VENV:-.venv}

if ! [ -x "$venv/bin/pip" ]; then
  "$python" -m venv "$venv"
fi
"$venv/bin/pip" install --quiet --no-cache-dir --no-deps -r requirements.txt
"$venv/bin/python" - <<'EOF'
from importlib.metadata import version

import autoray, cotengra, hdbscan, numba, numpy, opt_einsum, sklearn, threadpoolctl, torch, zadu
print(", ".join(f"{name} {version(name)}" for name in
                ("numpy", "cotengra", "opt_einsum", "torch", "zadu", "scikit-learn")))
EOF
