#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Do two engines that share the cores starve each other? Decodes alone, then twice at once, and prints what each of the
# two reaches of the speed of one alone; fails below 25 %.
#
#   bench/two_processes.sh [PROGRAM] [TOKENS]
set -euo pipefail
cd "$(dirname "$0")/.."
program=${1:-build/release/bin/fovea}
tokens=${2:-600}

speed() {
  "$program" generate -m smollm2 -p "Once upon a time" -n "$tokens" --ignore-eos --json --stats |
    python3 -c 'import json, sys; print(json.loads(list(sys.stdin)[-1])["stats"]["decode_tokens_per_second"])'
}

speed >/dev/null  # warms the page cache
alone=$(speed)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
speed >"$folder/a" &
speed >"$folder/b"
wait
python3 - "$alone" "$(cat "$folder/a")" "$(cat "$folder/b")" <<'PYTHON'
import sys
alone, a, b = map(float, sys.argv[1:])
print(f"alone {alone:.0f} tokens/s, two at once {a:.0f} and {b:.0f}: {a / alone:.0%} and {b / alone:.0%} of one alone")
sys.exit(0 if min(a, b) >= 0.25 * alone else 1)
PYTHON
