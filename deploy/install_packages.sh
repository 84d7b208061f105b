#!/usr/bin/env bash
# Installs the Debian packages that Tenon needs: install_packages.sh [build|test|runtime]...
# Does nothing (and needs no network) for packages that are there already.
set -euo pipefail

build=(g++ cmake ninja-build ccache pkg-config libgrpc++-dev protobuf-compiler-grpc libprotobuf-dev
  protobuf-compiler libabsl-dev libtbb-dev prometheus-cpp-dev libcivetweb-dev libopenblas-dev libhwy-dev
  libspdlog-dev nlohmann-json3-dev libqhull-dev libsqlite3-dev libssl-dev
  zlib1g-dev)
test=(libgtest-dev libgmock-dev python3 python3-grpcio python3-protobuf python3-pytest python3-numpy
  clang clang-tidy libclang-rt-14-dev openssl python3-venv python3-scipy python3-torch
  python3-matplotlib python3-tqdm golang-go golang-google-grpc-dev
  golang-github-golang-protobuf-1-5-dev protoc-gen-go-1-5 protoc-gen-go-grpc ruby ruby-grpc
  ruby-grpc-tools)
runtime=(libgrpc++1.51 libprometheus-cpp-core1.0 libcivetweb1 libtbb12 libopenblas0-pthread libhwy1
  libspdlog1.10 libqhull-r8.0 libsqlite3-0 libssl3 zlib1g)

wanted=()
for group in "${@:-build}"; do
  case "$group" in
    build) wanted+=("${build[@]}") ;;
    test) wanted+=("${build[@]}" "${test[@]}") ;;
    runtime) wanted+=("${runtime[@]}") ;;
    *) echo "install_packages.sh: unknown group '$group' (build, test, runtime)" >&2; exit 2 ;;
  esac
done

missing=()
for package in "${wanted[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo)
echo "installing: ${missing[*]}"
"${as_root[@]}" apt-get update -qq
DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends \
  "${missing[@]}" >/dev/null
