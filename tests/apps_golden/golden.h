// SPDX-License-Identifier: Apache-2.0
// The reference's numbers for the real model, and files of prompts.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace fovea::app {

using Json = nlohmann::json;

inline Json golden() {
  std::ifstream file(FOVEA_TEST_DATA "/golden_smollm2.json");
  return Json::parse(file);
}

inline std::vector<Json> json_lines(const std::string& text) {
  std::vector<Json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
  return lines;
}

// The path of a file of this process with this content.
inline std::string file_of(const std::string& content) {
  const std::string path = testing::TempDir() + std::to_string(getpid()) + "_prompts.jsonl";
  std::ofstream(path) << content;
  return path;
}

// All prompts of the reference in one file.
inline std::string prompts_file(const Json& cases) {
  std::string lines;
  for (const auto& [name, c] : cases.items())
    lines += Json{{"id", name}, {"prompt", c.at("text")}, {"bos", c.at("bos")}}.dump() + "\n";
  return file_of(lines);
}

}  // namespace fovea::app
