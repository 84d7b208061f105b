#!/usr/bin/env bash
# expect_report.sh PATTERN PROGRAM [ARGUMENT]...: the program must fail and say PATTERN.
set -u
if output=$("${@:2}" 2>&1); then
  printf '%s\nit was not stopped\n' "$output"
  exit 1
fi
grep -qE -- "$1" <<<"$output" || { printf '%s\nno word of: %s\n' "$output" "$1"; exit 1; }
