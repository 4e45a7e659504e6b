#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh clone to generated text: packages, release build, model, one prompt.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "demo: packages (scripts/setup.sh)"
scripts/setup.sh

echo "demo: building build/release/bin/fovea (some minutes; the log is build/demo.log)"
log=build/demo.log
mkdir -p build
if ! { cmake --preset release && cmake --build --preset release --target fovea_cli; } >"$log" 2>&1; then
  tail -n 40 "$log" >&2
  echo "demo: the build failed (last lines above, the whole log is $log)" >&2
  exit 1
fi

echo "demo: model (scripts/fetch_model.sh smollm2)"
scripts/fetch_model.sh smollm2

set -x
exec build/release/bin/fovea generate -m smollm2 -p "The capital of France is" -n 32 --stats
