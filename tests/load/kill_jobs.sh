#!/usr/bin/env bash
# Kills tenond at random moments of jobs, 50 times or $1 times, and compares the results:
#   TENON_BUILD_DIR=build tests/load/kill_jobs.sh [KILLS [SEED]]
set -euo pipefail
cd "$(dirname "$0")/../.."
TENON_KILLS="${1:-50}" TENON_SEED="${2:-1}" python3 -m pytest -q -s tests/python/test_jobs.py \
  -k test_killed_servers_resume_with_the_same_bits
