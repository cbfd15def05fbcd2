#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# install_deps.sh build|dev: Debian packages that are missing; nothing is done (and no root needed) when all are there.
set -eu
BUILD="g++ cmake ninja-build pkg-config python3 libfmt-dev nlohmann-json3-dev libtomlplusplus-dev libcli11-dev libpcre2-dev libicu-dev libssl-dev libgtest-dev libmpfr-dev"
DEV="clang clang-format clang-tidy libclang-rt-dev libbenchmark-dev libopenblas-dev"
wanted=$BUILD
[ "${1:-build}" = dev ] && wanted="$BUILD $DEV"
missing=""
for package in $wanted; do
  pattern=$(printf %s "$package" | sed "s/+/[+]/g")
  # A virtual or versioned name (libclang-rt-dev) counts when any provider is installed.
  if ! dpkg-query -W -f='${Status} ${Package} ${Provides}\n' 2>/dev/null | grep '^install ok installed' | grep -qE "[ (]${pattern}(,| |\$|:)"; then
    missing="$missing $package"
  fi
done
[ -z "$missing" ] && exit 0
as_root=""
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || { echo "make deps: missing packages:$missing; install them as root (no sudo here)" >&2; exit 2; }
  as_root="sudo"
fi
echo "make deps: installing$missing"
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq
names=""
for package in $missing; do
  case $package in
    libclang-rt-dev) apt-cache show libclang-rt-dev >/dev/null 2>&1 || package=$(apt-cache search '^libclang-rt-[0-9]*-dev$' | sort -V | head -n 1 | cut -d' ' -f1) ;;
  esac
  names="$names $package"
done
$as_root apt-get install -y -qq --no-install-recommends $names >/dev/null
