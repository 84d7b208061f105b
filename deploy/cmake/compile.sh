#!/bin/sh
# Compiles by way of ccache: compile.sh CCACHE COMPILER ARGUMENT...
# Precompiled headers are made anew each time. GCC takes an old one for the headers that it was made
# from, whatever they hold by now, and ccache follows it. What uses one is cached by a sum of the
# headers (.sum), since no two precompiled ones have the same bytes.
set -e
ccache=$1
shift
precompiled=
for argument; do
  case $argument in *.gch) precompiled=$argument ;; esac
done
if [ -z "$precompiled" ]; then
  CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_PCH_EXTSUM=1 exec "$ccache" "$@"
fi
rm -f "$precompiled" "$precompiled.sum"
"$@"
headers=$(sed 's/^[^:]*:\( \|$\)//; s/\\$//' "$precompiled.d")
# Without a sum (names with spaces) ccache looks at the bytes.
{ echo "$@" && cat $headers; } >"$precompiled.all" && sha256sum <"$precompiled.all" \
  >"$precompiled.sum" || rm -f "$precompiled.sum"
rm -f "$precompiled.all"
