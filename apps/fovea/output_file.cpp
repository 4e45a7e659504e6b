// SPDX-License-Identifier: Apache-2.0
#include "fovea/output_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "fovea/command.h"

namespace fovea::app {
namespace fs = std::filesystem;

void check_output_file(std::string_view flag, const std::string& path,
                       const std::vector<std::string>& inputs) {
  std::error_code ignored;  // what is not there is no other file's name
  for (const std::string& input : inputs) {
    if (fs::equivalent(path, input, ignored))
      throw UsageError(
          fmt::format("{}: '{}' is '{}', which is read and would be lost, name another file", flag,
                      path, input));
  }
  if (fs::is_directory(path, ignored))
    throw UsageError(fmt::format("{}: '{}' is a folder, name a file in it", flag, path));
  const fs::path folder = fs::path(path).parent_path();
  if (!folder.empty() && !fs::is_directory(folder, ignored))
    throw UsageError(
        fmt::format("{}: '{}' cannot be written: there is no folder '{}', make it or "
                    "name another file",
                    flag, path, folder.string()));
}

void write_output_file(std::string_view flag, const std::string& path, std::string_view text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file)
    throw UsageError(fmt::format("{}: '{}' cannot be written: {}, name another file", flag, path,
                                 errno != 0 ? std::strerror(errno) : "unknown reason"));
}

}  // namespace fovea::app
