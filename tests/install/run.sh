#!/usr/bin/env bash
# Installs a build into a folder of its own, builds a program outside the tree with what is there
# alone, and runs it against the installed server: run.sh BUILD
set -euo pipefail
build=$1
source=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$folder"' EXIT
prefix=$folder/prefix

cmake --install "$build" --prefix "$prefix" >"$folder/log"
for file in bin/tenond bin/tenon include/tenon-cpp/tenon/tenon.h \
            share/tenon/proto/tenon/v1/contraction.proto \
            share/bash-completion/completions/tenon share/zsh/site-functions/_tenon \
            share/fish/vendor_completions.d/tenon.fish; do
  [ -s "$prefix/$file" ] || { echo "$file is not installed" >&2; exit 1; }
done
! find "$prefix" -name '*.py' | grep . || { echo "there is Python in it" >&2; exit 1; }

cp -r "$source/consumer" "$folder/consumer"
cmake -S "$folder/consumer" -B "$folder/build" -DCMAKE_PREFIX_PATH="$prefix" >>"$folder/log"
cmake --build "$folder/build" >>"$folder/log" 2>&1 || { cat "$folder/log" >&2; exit 1; }

"$prefix/bin/tenond" --listen=127.0.0.1:0 --metrics=127.0.0.1:0 --drain_delay=0s \
  --port_file="$folder/port" 2>"$folder/server" &
server=$!
until [ -s "$folder/port" ]; do
  kill -0 "$server" || { cat "$folder/server" >&2; exit 1; }
  sleep 0.05
done
address=127.0.0.1:$(head -n 1 "$folder/port" | cut -d ' ' -f 1)
said=$("$folder/build/consumer" "$address")
[ "$said" = $'9\nBAD_EXPRESSION' ] || { echo "the consumer said: $said" >&2; exit 1; }
"$prefix/bin/tenon" info --server "$address" >/dev/null
kill "$server"
wait "$server"
server=
