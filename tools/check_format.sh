#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every C++ file is as clang-format leaves it. An argument names another root than this repository.
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"
mapfile -d '' -t files < <(find . \( -path ./build -o -path './.[!.]*' \) -prune -o \
  \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0)
if ((${#files[@]} == 0)); then
  echo "check_format: no C++ file in $PWD" >&2
  exit 1
fi
printf '%s\0' "${files[@]}" | xargs -0 -n 8 -P "$(nproc)" clang-format-19 --dry-run -Werror
echo "${#files[@]} files are formatted"
