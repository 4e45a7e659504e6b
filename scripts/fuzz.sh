#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the fuzzers of fuzz/ and runs all of them at once, each for SECONDS (default 60) from the inputs in fuzz/corpus.
# Prints one line a target; a finding is an error, and the input that made it stays in build/fuzz/findings.
#
#   scripts/fuzz.sh [SECONDS]
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

seconds=${1:-60}
if (($# > 1)) || [[ ! $seconds =~ ^[1-9][0-9]*$ ]]; then
  echo "usage: scripts/fuzz.sh [SECONDS]" >&2
  exit 2
fi
declare -A max_len=([gguf]=8192 [tokenizer]=1024 [prompts]=1024 [chat_template]=2048 [call_file]=4096)
build=build/fuzz findings=build/fuzz/findings

cmake --preset fuzz >/dev/null && cmake --build --preset fuzz --parallel "$(nproc)" || exit 1
for program in "$build"/bin/fovea_fuzz_*; do
  if [[ -z ${max_len[${program##*fovea_fuzz_}]:-} ]]; then
    echo "fuzz: $program has no longest input here" >&2
    exit 1
  fi
done
mkdir -p "$findings"
export ASAN_OPTIONS=allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1

declare -A runs
trap 'kill "${runs[@]}" 2>/dev/null' EXIT
for target in "${!max_len[@]}"; do
  grown=$build/corpus/$target  # what is found on the way; the repository's inputs are only read
  mkdir -p "$grown"
  "$build/bin/fovea_fuzz_$target" -max_total_time="$seconds" -max_len="${max_len[$target]}" -timeout=10 \
    -rss_limit_mb=1024 -malloc_limit_mb=64 -print_final_stats=1 -artifact_prefix="$findings/$target-" \
    "$grown" "fuzz/corpus/$target" >"$build/$target.log" 2>&1 &
  runs[$target]=$!
done

failed=0
for target in "${!runs[@]}"; do
  code=0
  wait "${runs[$target]}" || code=$?
  inputs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$build/$target.log")
  if ((code == 0 && ${inputs:-0} > 0)); then
    echo "$target: $inputs inputs, no finding"
  else
    failed=1
    grep -E '^(==[0-9]+== *ERROR|SUMMARY|.*runtime error|Test unit written)|what\(\)' "$build/$target.log" | head -n 10
    echo "$target: a finding after ${inputs:-some} inputs (code $code), see $build/$target.log"
  fi
done
exit "$failed"
