#!/usr/bin/env bash
# Installs what the tests need, builds everything and runs every test. Safe to run twice.
#   BUILD_DIR   where to build (default: build)
#   TENON_QUICK=1 leaves out the sanitizer builds and clang-tidy
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
  # The engine without gRPC, under the sanitizers.
  step "address and undefined-behaviour sanitizers: all engine tests"
  cmake -G Ninja -S . -B "$build-address" -DTENON_TESTS=ON -DTENON_SANITIZE=address
  cmake --build "$build-address" -j "$jobs"
  ctest --test-dir "$build-address" --output-on-failure -j "$jobs"

  step "thread sanitizer: the scheduler's and the planner's searching tests"
  cmake -G Ninja -S . -B "$build-thread" -DTENON_TESTS=ON -DTENON_SANITIZE=thread
  cmake --build "$build-thread" -j "$jobs" --target schedule_test plugin_test planner_search_test \
    planted_bug
  ctest --test-dir "$build-thread" --output-on-failure -j "$jobs" -L 'scheduler|sanitizer'
fi

if [ "${TENON_QUICK:-0}" != 1 ]; then
  step "clang-tidy: the engine's rooms"
  tests/clang_tidy.sh "$build" "$jobs"
fi

if [ "${TENON_QUICK:-0}" != 1 ]; then
  step "fuzz targets: 60 s each; then frames in wrong order, to a whole server"
  TENON_BUILD_DIR="$build" TENON_FUZZ_DIR="$build-fuzz" tests/fuzz/run.sh 60
  TENON_BUILD_DIR="$build" TENON_FUZZ_DIR="$build-fuzz" tests/load/frame_sequences.sh 4000
fi

if command -v nvcc >/dev/null; then
  step "CUDA provider: build and host tests"
  cmake -G Ninja -S . -B "$build-cuda" -DTENON_TESTS=ON -DTENON_CUDA=ON
  cmake --build "$build-cuda" -j "$jobs" --target cuda_provider_test
  ctest --test-dir "$build-cuda" --output-on-failure -R '^Cuda'
fi

step "C++ tests"
ctest --test-dir "$build" --output-on-failure -j "$jobs"

step "Python tests, through generated stubs"
TENON_BUILD_DIR="$(realpath "$build")" "$python" -m pytest -q tests/python

step "Examples in Go and Ruby, and grpcurl lines"
TENON_BUILD_DIR="$(realpath "$build")" "$python" -m pytest -q tests/client/languages

step "Python package: its wheel, beside its peers, in an environment of its own"
package=$(realpath "$build")/package
"$python" -m venv --system-site-packages "$package"
"$package/bin/pip" install --quiet --no-cache-dir --no-deps -r tests/client/python/requirements.txt
"$package/bin/pip" install --quiet --no-cache-dir ./client/python

step "Python tests, of the package"
TENON_BUILD_DIR="$(realpath "$build")" TENON_PACKAGE=installed \
  "$package/bin/python" -m pytest -q tests/client/python
