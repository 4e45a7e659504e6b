// SPDX-License-Identifier: Apache-2.0
// The tensor encodings of the file format: names of all that are known, sizes of those read here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fovea/engine/gguf.h"

namespace fovea::engine {

// Values are stored in blocks along the last dimension.
struct BlockFormat {
  std::int64_t values;  // in one block
  std::int64_t bytes;   // of one block
};
// None for an encoding that this program does not read.
std::optional<BlockFormat> block_format_of(GgmlType type);

// "F32, F16, ...": the encodings that have a block format, for messages.
std::string readable_types();

}  // namespace fovea::engine
