#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs clang-tidy, as .clang-tidy says, over the library, the engine and the program: all their sources, or those that
# changed since this branch left the main one (on the main branch: since the commit before), a changed header by one
# source that includes it. With --minutes nothing is begun after so long; what was left out is said.
#
#   scripts/tidy.sh [--changed] [--minutes N]
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  echo "usage: scripts/tidy.sh [--changed] [--minutes N]" >&2
  exit 2
}
changed=false minutes=
while (($# > 0)); do
  case $1 in
    --changed) changed=true ;;
    --minutes)
      [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || usage
      minutes=$2
      shift
      ;;
    *) usage ;;
  esac
  shift
done

build=build/tidy
mkdir -p "$build"
cmake --preset tidy >"$build/configure.log" || { cat "$build/configure.log"; exit 1; }
mapfile -t known < <(python3 - "$build/compile_commands.json" <<'PYTHON'
import json, os, sys
for entry in json.load(open(sys.argv[1])):
    path = os.path.relpath(entry["file"])
    if not path.startswith("build/"):  # what CMake makes for itself
        print(path)
PYTHON
)

# The sources to check for these changed files: themselves, or for a header the source of its name, or the first one
# that includes it.
sources_of() {
  local file
  for file in "$@"; do
    if [[ $file == *.h ]]; then
      local stem=/${file##*/} name=${file##*/}
      stem=${stem%.h}.cpp
      printf '%s\n' "${known[@]}" | grep -F -- "$stem" || grep -lF "$name\"" "${known[@]}" || true
    else
      echo "$file"
    fi | head -n 1
  done | sort -u | grep -Fxf <(printf '%s\n' "${known[@]}") || true
}

files=("${known[@]}")
if $changed; then
  base=$(git merge-base HEAD origin/HEAD 2>/dev/null) || base=
  if [[ -z $base || $base == "$(git rev-parse HEAD)" ]]; then base=$(git rev-parse --verify -q HEAD^) || base=; fi
  if [[ -z $base ]]; then
    echo "tidy: no commit to compare with"
    exit 0
  fi
  mapfile -t names < <(git diff --name-only --diff-filter=d "$base" -- '*.cpp' '*.h'
                       git ls-files --others --exclude-standard -- '*.cpp' '*.h')
  mapfile -t files < <(sources_of "${names[@]}")
fi

findings=$build/findings
rm -rf "$findings"
mkdir -p "$findings"
deadline=$((SECONDS + 60 * ${minutes:-100000}))
check() {  # one source; its findings go to a file of their own, so that two at once do not mix
  local log=$findings/${1//\//_}.log
  clang-tidy-19 -p "$build" --quiet --warnings-as-errors='*' --extra-arg-before=--driver-mode=g++ "$1" >"$log" 2>&1 &&
    rm "$log"
}
left_out=0
for file in "${files[@]}"; do
  if ((SECONDS >= deadline)); then
    left_out=$((left_out + 1))
    continue
  fi
  while (($(jobs -rp | wc -l) >= $(nproc))); do wait -n || true; done
  check "$file" &
done
wait || true

failed=("$findings"/*.log)
if [[ -e ${failed[0]} ]]; then
  cat "${failed[@]}" | grep -vE '^(Suppressed|Use -header-filter|[0-9]+ warnings? )'
else
  failed=()
fi
echo "tidy: ${#files[@]} sources, ${#failed[@]} with findings, $left_out left out"
((${#failed[@]} == 0))
