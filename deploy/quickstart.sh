#!/usr/bin/env bash
# From a fresh clone to a result: installs packages, builds, starts tenond, contracts a circuit's
# amplitude and scores five projections through the real wire, and stops the server again.
# Safe to run twice. BUILD_DIR chooses the build folder (default: build).
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD_DIR:-build}

echo "== packages"
deploy/install_packages.sh build
echo "== build"
cmake -G Ninja -S . -B "$build" -DTENON_TESTS=OFF >/dev/null
cmake --build "$build" --target tenond tenon

work=$(mktemp -d)
server=
stop() {
  [ -z "$server" ] || { kill -TERM "$server" 2>/dev/null && wait "$server" || true; }
  rm -rf "$work"
}
trap stop EXIT

echo "== server"
"$build/server/tenond" --listen=127.0.0.1:0 --metrics=127.0.0.1:0 --drain_delay=0s \
  --port_file="$work/port" 2>"$work/log" &
server=$!
for _ in $(seq 300); do
  [ -s "$work/port" ] && break
  kill -0 "$server" 2>/dev/null || { cat "$work/log" >&2; exit 1; }
  sleep 0.1
done
export TENON_SERVER="127.0.0.1:$(cut -d" " -f1 "$work/port")"
tenon="$build/client/cpp/tenon"
"$tenon" info --wait 60

echo
echo "== contraction: an amplitude of a random circuit on 5x5 qubits, 14 cycles"
networks=tests/data/networks
"$tenon" contract "$networks/rqc_fsim_5x5_m14_amp.json" --check "$networks/reference.json"

echo
echo "== measurement: five projections of the digits data set (1797 x 64)"
digits=tests/data/digits
"$tenon" measure --hd "$digits/digits_hd.npy" --spec tnc:k=20 --spec stress --spec srho \
  "$digits"/digits_{pca,tsne,isomap,mds,random}.npy
echo
echo "quickstart: done"
