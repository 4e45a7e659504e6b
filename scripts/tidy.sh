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
findings=$build/findings
rm -rf "$findings"
mkdir -p "$findings"
cmake --preset tidy >"$build/configure.log" || { cat "$build/configure.log"; exit 1; }

if $changed; then
  head=$(git rev-parse HEAD)
  base=$(git merge-base HEAD origin/HEAD 2>/dev/null) || base=$head
  if [[ $base == "$head" ]]; then base=$(git rev-parse --verify --quiet HEAD^) || base=; fi
  if [[ -z $base ]]; then
    echo "tidy: nothing checked: no earlier commit here to compare with"
    exit 0
  fi
  git diff --name-only --diff-filter=d "$base" -- '*.cpp' '*.h' >"$build/changed"
  git ls-files --others --exclude-standard -- '*.cpp' '*.h' >>"$build/changed"
  mapfile -t names <"$build/changed"
  python3 tools/tidy_sources.py "$build" --for "${names[@]}" >"$build/sources"
else
  python3 tools/tidy_sources.py "$build" >"$build/sources"
fi
mapfile -t files <"$build/sources"

deadline=$((SECONDS + 60 * ${minutes:-100000}))
check() {  # one source; its findings go to a file of their own, so that two at once do not mix
  local log=$findings/${1//\//:}.log
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

shopt -s nullglob
failed=("$findings"/*.log)
for log in "${failed[@]}"; do
  log_name=${log##*/}
  echo "tidy: ${log_name//:/\/}"
  grep -vE '^(Suppressed|Use -header-filter|[0-9]+ warnings? )' "$log" || true
done
echo "tidy: ${#files[@]} sources, ${#failed[@]} with findings, $left_out left out"
((${#failed[@]} == 0))
