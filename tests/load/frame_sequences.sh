#!/usr/bin/env bash
# Sends random sequences of frames to a server under the address sanitizer:
#   frame_sequences.sh COUNT [SEED] [RESULT.json]
# See frame_sequences.cc. The environment is that of tests/fuzz/run.sh.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "${TENON_BUILD_DIR:-build}")
fuzz=${TENON_FUZZ_DIR:-build-fuzz}
cmake -G Ninja -S tests/fuzz -B "$fuzz" -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_C_COMPILER=clang \
  -DTENON_BUILD="$build" >/dev/null
cmake --build "$fuzz" -j "$(nproc)" --target frame_sequences
exec "$fuzz/frame_sequences" "$@"
