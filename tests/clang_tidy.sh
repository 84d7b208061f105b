#!/usr/bin/env bash
# Checks the engine's rooms and the server's plans with clang-tidy: clang_tidy.sh BUILD_DIR [JOBS] [FILE]...
# BUILD_DIR has been configured. Rules and what is left out of them: .clang-tidy.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:?usage: clang_tidy.sh BUILD_DIR [JOBS] [FILE]...}
jobs=${2:-$(nproc)}
files=("${@:3}")
[ ${#files[@]} -gt 0 ] || files=(backends/contraction/*.cc backends/schedule/*.cc backends/cpu/*.cc
  backends/measurement/*.cc backends/planner/*.cc server/plan_*.cc server/search_options.cc
  server/ticker.cc)

# GCC's precompiled headers are none of clang's.
commands=$(mktemp -d)
trap 'rm -rf "$commands"' EXIT
sed -E 's# -Winvalid-pch -include [^ ]+cmake_pch\.hxx##g' "$build/compile_commands.json" \
  >"$commands/compile_commands.json"

options=(--quiet -p "$commands" --extra-arg=-Wno-unknown-warning-option)  # those of GCC
printf '%s\0' "${files[@]}" |
  xargs -0 -P "$jobs" -n 1 clang-tidy "${options[@]}" 2> >(grep -vE 'warnings? (generated|treated)' >&2)
