// SPDX-License-Identifier: Apache-2.0
// fovea_tiny_model: writes a llama model of random weights, for trying the program by hand.
#include <CLI/CLI.hpp>
#include <cstddef>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "engine/tiny_model.h"

namespace {

using fovea::engine::test::TinyModel;

bool write(const std::string& path, const std::vector<std::byte>& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
  return out.flush().good();
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kMaxSize = 1 << 14;
  TinyModel model;
  std::string path;
  CLI::App app("Writes a llama model of random weights whose tokens are the 256 bytes and an end");
  const auto number = [&](const char* flag, int& value, const char* what, int least = 1) {
    app.add_option(flag, value, what)->check(CLI::Range(least, kMaxSize))->capture_default_str();
  };
  number("--layers", model.layers, "layers");
  number("--heads", model.heads, "query heads");
  number("--kv-heads", model.kv_heads, "heads of keys and values, a divisor of --heads");
  number("--head-size", model.head_size, "elements of a head", 2);
  number("--width", model.width, "elements of a hidden state");
  number("--ffn", model.ffn, "elements between the feed-forward matrices");
  number("--context", model.context, "longest context in tokens");
  app.add_option("--seed", model.seed, "of the weights")->capture_default_str();
  app.add_option("--out", path, "the file to write")->required();
  try {
    app.parse(argc, argv);
    if (model.heads % model.kv_heads != 0)
      throw CLI::ValidationError("--kv-heads", "must divide --heads");
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  model.rotated = model.head_size / 2 * 2;
  if (!write(path, model.fill().bytes())) {
    std::cerr << path << ": cannot be written\n";
    return 1;
  }
  return 0;
}
