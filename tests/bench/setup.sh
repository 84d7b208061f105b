#!/usr/bin/env bash
# Makes the virtual environments of the benchmarks' peers. Safe to run twice.
#   tests/bench/setup.sh [contraction] [planner]     (default: both)
#
# contraction   .venv, of requirements.txt: peers of contraction and measures (about 4 GB)
# planner       .venv-planner and .venv-omeco, of planner/requirements*.txt
#
#   PYTHON     interpreter to use (default: /usr/bin/python3; the lists are pinned for Python 3.11)
#   PYTHON312  interpreter for omeco, whose wheel is for 3.12 alone (default: one of PATH or pyenv)
#   VENV       where the first one is made (default: tests/bench/.venv)
set -euo pipefail
cd "$(dirname "$0")"
python=${PYTHON:-/usr/bin/python3}
venv=${VENV:-.venv}

# install FOLDER PYTHON REQUIREMENTS: nothing else comes in, and nothing is built from source.
install() {
  [ -x "$1/bin/pip" ] || "$2" -m venv "$1"
  "$1/bin/pip" install --quiet --no-cache-dir --no-deps -r "$3"
}

find_python312() {
  local candidate
  for candidate in "${PYTHON312:-}" python3.12 "$HOME"/.pyenv/versions/3.12.*/bin/python3.12; do
    if [ -n "$candidate" ] &&
        "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "setup.sh: omeco needs a Python 3.12: PYTHON312=/path/to/python3.12 $0 planner" >&2
  return 1
}

setup_contraction() {
  install "$venv" "$python" requirements.txt
  "$venv/bin/python" - <<'EOF'
from importlib.metadata import version

import autoray, cotengra, hdbscan, numba, numpy, opt_einsum, sklearn, threadpoolctl, torch, zadu
print(", ".join(f"{name} {version(name)}" for name in
                ("numpy", "cotengra", "opt_einsum", "torch", "zadu", "scikit-learn")))
EOF
}

setup_planner() {
  install .venv-planner "$python" planner/requirements.txt
  .venv-planner/bin/python - <<'EOF'
from importlib.metadata import version

import cmaes, cotengra, cotengrust, kahypar, loky, optuna
print(", ".join(f"{name} {version(name)}" for name in
                ("cotengra", "cotengrust", "kahypar", "optuna", "loky")))
EOF
  local python312
  python312=$(find_python312)
  install .venv-omeco "$python312" planner/requirements-omeco.txt
  .venv-omeco/bin/python -c '
import omeco
from importlib.metadata import version
print("omeco", version("omeco"))'
}

[ $# -gt 0 ] || set -- contraction planner
for part; do
  case $part in
    contraction | planner) "setup_$part" ;;
    *) echo "setup.sh: unknown: $part; there are contraction and planner" >&2; exit 2 ;;
  esac
done
