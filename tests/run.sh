#!/usr/bin/env bash
# Installs what the tests need, builds everything and runs every test. Safe to run twice.
#   BUILD_DIR   where to build (default: build)
#   TENON_QUICK=1 leaves out the sanitizer builds
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD_DIR:-build}
python=${PYTHON:-/usr/bin/python3}
jobs=$(nproc)

deploy/install_packages.sh test

step() { printf '\n== %s\n' "$*"; }

step "release build"
cmake -G Ninja -S . -B "$build" -DTENON_TESTS=ON -DTENON_SANITIZE=
cmake --build "$build" -j "$jobs"

if [ "${TENON_QUICK:-0}" != 1 ]; then
  # The engine without gRPC, under the sanitizers; each of them is first shown to find a planted bug.
  for sanitizer in address thread; do
    step "$sanitizer sanitizer: build and engine tests"
    cmake -G Ninja -S . -B "$build-$sanitizer" -DTENON_TESTS=ON -DTENON_SANITIZE=$sanitizer
    cmake --build "$build-$sanitizer" -j "$jobs"
    selection=()
    [ $sanitizer = thread ] && selection=(-L scheduler)
    ctest --test-dir "$build-$sanitizer" --output-on-failure -j "$jobs" "${selection[@]}"
  done
fi

step "C++ tests"
ctest --test-dir "$build" --output-on-failure -j "$jobs"

step "Python tests, through generated stubs"
TENON_BUILD_DIR="$(realpath "$build")" "$python" -m pytest -q tests/python
