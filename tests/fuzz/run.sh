#!/usr/bin/env bash
# Runs every fuzz target: run.sh SECONDS [TARGET]...
# Each runs for so many seconds, as many side by side as there are cores, from its seeds in corpus/.
# What it finds is kept in BUILD/artifacts; anything found, or the planted bug not found, fails.
#   TENON_BUILD_DIR   a release build (default: build)
#   TENON_FUZZ_DIR    where to build the targets (default: build-fuzz)
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:?usage: run.sh SECONDS [TARGET]...}
targets=("${@:2}")
[ ${#targets[@]} -gt 0 ] ||
  targets=(planted measure_frames contract_frames job_frames upload_frames plan network einsum npy)
build=$(realpath "${TENON_BUILD_DIR:-build}")
fuzz=${TENON_FUZZ_DIR:-build-fuzz}

cmake -G Ninja -S tests/fuzz -B "$fuzz" -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_C_COMPILER=clang \
  -DTENON_BUILD="$build" >/dev/null
cmake --build "$fuzz" -j "$(nproc)" --target "${targets[@]}"
fuzz=$(realpath "$fuzz")
mkdir -p "$fuzz/artifacts"

# fuzz_one TARGET: 0 if it found nothing; for `planted`, if it found what is planted.
fuzz_one() {
  local target=$1 seeds=tests/fuzz/corpus/$1 log=$fuzz/$1.log work=$fuzz/corpus/$1 options=()
  [ "$target" = planted ] && seeds=tests/fuzz/corpus/contract_frames
  case "$target" in
    plan | network) options+=(-dict=tests/fuzz/json.dict) ;;
    npy | einsum) options+=("-dict=tests/fuzz/$target.dict") ;;
  esac
  rm -rf "$work"
  mkdir -p "$work"
  # The planted bug ends its run: it may take what the others take in a row.
  local limit=$seconds
  [ "$target" = planted ] && limit=$((4 * seconds))
  # One allocation that a small input can cause stays far below malloc_limit_mb.
  local status=0
  "$fuzz/$target" "$work" "$seeds" -max_total_time="$limit" -print_final_stats=1 -timeout=25 \
    -rss_limit_mb=2048 -malloc_limit_mb=256 -max_len=16384 "${options[@]}" \
    -artifact_prefix="$fuzz/artifacts/$target-" >"$log" 2>&1 || status=$?
  if [ "$target" = planted ]; then
    [ "$status" -ne 0 ] && grep -q 'AddressSanitizer: heap-buffer-overflow' "$log" &&
      grep -q 'ShadowTensor::Copy' "$log"
  else
    return "$status"
  fi
}

report() {
  local target=$1 verdict=$2 log=$fuzz/$1.log
  awk -v target="$target" -v verdict="$verdict" '
    /cov: / { for (i = 1; i < NF; ++i) { if ($i == "cov:") cov = $(i+1); if ($i == "ft:") ft = $(i+1) }
              sub("#", "", $1); last = $1 }
    /stat::number_of_executed_units/ { last = $2 }
    /stat::average_exec_per_sec/ { rate = $2 }
    /stat::new_units_added/ { units = $2 }
    /stat::peak_rss_mb/ { rss = $2 }
    END { printf "%-16s %10d executions %7d/s  edges %6d  features %6d  new inputs %5d  %4d MiB  %s\n",
          target, last, rate, cov, ft, units, rss, verdict }' "$log"
}

run_one() {
  if fuzz_one "$1"; then
    [ "$1" = planted ] && report "$1" "planted bug found" || report "$1" "nothing found"
    return 0
  fi
  [ "$1" = planted ] && report "$1" "PLANTED BUG NOT FOUND" || report "$1" "FAILED"
  tail -n 40 "$fuzz/$1.log"
  return 1
}

# Children of xargs see these.
export -f fuzz_one report run_one
export fuzz seconds
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -c 'run_one "$@"' _ {}
