#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that must hold, in stages; a failed stage does not stop the others. Prints minutes per stage and, as its
# last line, what passed, failed and was skipped over all of them. --long adds what takes long to test but nothing new to
# build; --full runs all that in a bare Debian root, after scripts/demo.sh, and here what needs builds of its own.
#
# ctest labels: `golden` needs the real model, `long` takes minutes and runs with --long and --full, `no_sanitizer` makes
# no sense under a sanitizer. Sanitized builds leave all three out, but for a part of the first two with --long.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

extent=short
for argument in "$@"; do
  case $argument in
    --long) extent=long ;;
    --full) extent=full ;;
    *)
      echo "usage: scripts/test.sh [--long | --full]" >&2
      exit 2
      ;;
  esac
done

cores=$(nproc)
results=$PWD/build/results
rm -rf "$results"
mkdir -p "$results"
stages=$results/stages.tsv  # name, exit code, seconds, JUnit file or -
failed_stages=0
exec 3>&1  # the real output, whatever a stage's is

finish() {
  echo "== minutes"
  awk -F '\t' '{printf "%6.1f  %s%s\n", $3 / 60, $1, $2 == 0 ? "" : "  (failed)"; all += $3}
               END {printf "%6.1f  all\n", all / 60}' "$stages"
  local code=0 summary
  summary=$(python3 tools/count_tests.py "$stages") || code=$?
  if [[ ! ${summary##*$'\n'} =~ ^[0-9]+\ passed,\ [0-9]+\ failed,\ [0-9]+\ skipped$ ]]; then
    # No python3, or the counting broke: the line that callers read comes all the same.
    summary+=$'\n'"0 passed, $((failed_stages + 1)) failed, 0 skipped"
    code=1
  fi
  echo "$summary"
  exit "$code"
}
interrupted() {
  trap '' INT TERM
  exec >&3
  printf 'interrupted\t130\t0\t-\n' >>"$stages"
  failed_stages=$((failed_stages + 1))
  finish
}
trap interrupted INT TERM

# stage NAME COMMAND...: runs it with its output in a log; shows the end of the log if it fails.
stage() {
  local name=$1 log=$results/${1//[^a-z0-9]/_}.log begin=$SECONDS code=0
  shift
  echo "== $name"
  "$@" >"$log" 2>&1 || code=$?
  if ((code != 0)); then
    failed_stages=$((failed_stages + 1))
    echo "-- failed with code $code; from ${log#"$PWD/"}:"
    if [[ -n ${junit:-} ]]; then  # what failed is shown with its output at the end
      sed -n '/^The following tests/,/^Errors while/p' "$log"
    else
      grep -E 'error:|^FAILED:' "$log" | head -n 20
      tail -n 40 "$log"
    fi
  fi
  printf '%s\t%s\t%s\t%s\n' "$name" "$code" "$((SECONDS - begin))" "${junit:--}" >>"$stages"
}

wrapper=(env)  # what the programs of a stage run under

build() {  # PRESET [cmake --build arguments]: goes on after an error, so that the rest is still tested
  local preset=$1
  shift
  cmake --preset "$preset" &&
    "${wrapper[@]}" cmake --build --preset "$preset" --parallel "$cores" "$@" -- -k 0
}

tests() {  # NAME PRESET [ctest arguments]
  local name=$1 preset=$2
  shift 2
  local junit=$results/${name//[^a-z0-9]/_}.xml
  stage "$name" "${wrapper[@]}" ctest --preset "$preset" --parallel "$cores" --no-tests=error --output-junit "$junit" \
    --test-output-size-passed 16384 "$@"
}

slow_golden='/cpu_reference_.*_long'  # long prompts through the slow backend: half a minute of each core
not_sanitized='^(golden|long|no_sanitizer)$' not_built='(golden|long|faults)_NOT_BUILT'
sanitized=(example_one_layer example_serving example_own_backend example_broken_backend)  # what those tests need
for folder in base kv attention select conformance backends backends_cpu allocation engine apps; do
  sanitized+=("fovea_tests_$folder")
done

# What runs in several threads; the kit does so in `backends`.
threaded=(base kv attention backends backends_cpu allocation engine)
long_sanitized=(engine_golden apps_golden conformance_long)

everything_short() {
  stage "ci: build" build ci
  stage "ci: compile times" python3 tools/check_compile_times.py build/ci
  tests "ci: tests" ci --label-exclude '^long$' --exclude-regex "$slow_golden"
  stage "dev: build" build dev --target "${sanitized[@]}"
  tests "dev: tests" dev --label-exclude "$not_sanitized" --exclude-regex "$not_built"
  stage "fuzz" scripts/fuzz.sh 60
  stage "tidy: changed sources" scripts/tidy.sh --changed --minutes 2
}

everything_long() {
  everything_short
  tests "ci: long tests" ci --label-regex '^long$'
  tests "ci: slow backend" ci --label-regex '^golden$' --tests-regex "$slow_golden"
  stage "dev: build of what is long" build dev --target "${long_sanitized[@]/#/fovea_tests_}"
  # The slow backend, long prompts and many at once take an hour there.
  tests "dev: real model" dev --label-regex '^golden$' --exclude-regex 'cpu_reference|_long|GoldenServing'
  tests "dev: conformance" dev --label-regex '^conformance_long$'
}

everything() {
  # The stages of the run inside come as ours. What is left to the bare root itself is the rest of its time, and its
  # failure if none of them has failed.
  local bare=$results/bare_root
  stage "bare root" scripts/bare_root.sh --results "$bare" scripts/demo.sh "scripts/test.sh --long"
  if [[ -s $bare/stages.tsv ]]; then
    awk -F '\t' -v OFS='\t' -v results="$bare" \
      '{if ($4 != "-") {sub(".*/", "", $4); $4 = results "/" $4} print "bare root: " $1, $2, $3, $4}' \
      "$bare/stages.tsv" >"$bare/ours.tsv"
    awk -F '\t' -v OFS='\t' 'NR == FNR {inside += $3; if ($2 != 0) failed = 1; next}
                             $1 == "bare root" {$3 -= inside; if (failed) $2 = 0} {print}' \
      "$bare/ours.tsv" "$stages" >"$bare/all.tsv"
    cat "$bare/all.tsv" "$bare/ours.tsv" >"$stages"
  fi

  stage "coverage" scripts/coverage.sh
  stage "tidy: all sources" scripts/tidy.sh
  # ThreadSanitizer wants its address ranges free, which a very random memory layout does not always grant.
  if setarch -R true 2>/dev/null; then wrapper=(setarch -R); fi
  stage "tsan: build" build tsan --target "${threaded[@]/#/fovea_tests_}"
  tests "tsan: tests" tsan --label-regex "^($(IFS='|' && echo "${threaded[*]}"))\$" \
    --label-exclude "$not_sanitized" --exclude-regex "$not_built"
  wrapper=(env)
}

stage "packages" scripts/setup.sh
stage "python packages" scripts/python_packages.sh
stage "model: smollm2" scripts/fetch_model.sh smollm2
stage "model: gemma3-270m" scripts/fetch_model.sh gemma3-270m
case $extent in
  short) everything_short ;;
  long) everything_long ;;
  full) everything ;;
esac
finish
