// SPDX-License-Identifier: Apache-2.0
// Files that commands write.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fovea::app {

// Before anything is computed: UsageError if the file is one of those that the command reads, or
// cannot become one (no folder for it, or a folder itself). `flag` names it.
void check_output_file(std::string_view flag, const std::string& path,
                       const std::vector<std::string>& inputs);
// UsageError if it cannot be written.
void write_output_file(std::string_view flag, const std::string& path, std::string_view text);

}  // namespace fovea::app
