#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Python packages that tests compare with into ${XDG_CACHE_HOME:-~/.cache}/fovea/python, an environment of
# their own. Does nothing, and needs no network, if these versions are there.
set -euo pipefail

packages=(numpy==2.4.6 safetensors==0.8.0)
folder=${XDG_CACHE_HOME:-$HOME/.cache}/fovea/python

is_right() {
  [[ -x $folder/bin/python3 ]] && "$folder/bin/python3" - "${packages[@]}" 2>/dev/null <<'PYTHON'
import importlib
import sys

for package in sys.argv[1:]:
    name, version = package.split("==")
    if importlib.import_module(name).__version__ != version:
        sys.exit(1)
PYTHON
}
if is_right; then
  exit 0
fi

echo "python_packages: installing ${packages[*]} (about 20 MB)"
mkdir -p "${folder%/*}"
scratch=$(mktemp -d "$folder.XXXXXX")  # beside the target, so that the last step is one rename
trap 'rm -rf "$scratch"' EXIT
if ! python3 -m venv "$scratch/venv" >"$scratch/log" 2>&1; then
  tail -n 5 "$scratch/log" >&2
  echo "python_packages: venv does not work with $(command -v python3 || echo 'no python3'); run scripts/setup.sh first" >&2
  exit 1
fi
for attempt in 1 2 3; do
  if "$scratch/venv/bin/python3" -m pip install --quiet --no-deps --only-binary=:all: --no-cache-dir \
      --disable-pip-version-check "${packages[@]}" >"$scratch/log" 2>&1; then
    break
  fi
  if ((attempt == 3)); then
    tail -n 5 "$scratch/log" >&2
    echo "python_packages: pip could not install ${packages[*]} in 3 tries (its last lines are above)" >&2
    exit 1
  fi
  sleep $((attempt * 5))
done
rm -rf "$folder"
mv "$scratch/venv" "$folder"
if ! is_right; then
  echo "python_packages: $folder does not hold what was installed there" >&2
  exit 1
fi
echo "python_packages: $folder"
