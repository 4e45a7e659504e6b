// SPDX-License-Identifier: Apache-2.0
// `fovea models`: the models known by name.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "fovea/command.h"
#include "fovea/engine/catalog.h"
#include "fovea/engine/model_info.h"
#include "fovea/model_path.h"

namespace fovea::app {
namespace {

using Json = nlohmann::ordered_json;

Json describe_model(const engine::KnownModel& model) {
  const std::string path = fmt::format("{}/{}", models_folder(), model.file_name);
  std::error_code ignored;
  const bool present = std::filesystem::is_regular_file(path, ignored);
  Json out{{"name", model.name}, {"license", model.license}, {"present", present}, {"path", path}};
  if (!present) {
    out["get"] = fetch_command(model.name);
    return out;
  }
  const engine::GgufFile file = engine::GgufFile::open(path);
  const engine::ModelInfo info = engine::inspect(file, DType::kBF16, "auto", 16);
  out["architecture"] = info.architecture;
  out["context"] = info.context_length;
  out["layers"] = info.num_layers;
  out["kv_bytes_per_token"] = info.kv_bytes_per_token;  // with a bf16 cache
  return out;
}

int list_models(bool json) {
  Json models = Json::array();
  for (const engine::KnownModel& model : engine::known_models())
    models.push_back(describe_model(model));
  if (json) {
    fmt::print("{}\n", Json{{"folder", models_folder()}, {"models", models}}.dump());
    return kDone;
  }
  for (const Json& m : models) {
    fmt::print("{}  ({})\n", m["name"].get<std::string>(), m["license"].get<std::string>());
    if (!m["present"].get<bool>()) {
      fmt::print("  not there: `{}` fetches it\n", m["get"].get<std::string>());
      continue;
    }
    fmt::print("  {}\n  {}, {} layers, context {}, {} bytes of bf16 cache a token\n",
               m["path"].get<std::string>(), m["architecture"].get<std::string>(),
               m["layers"].get<int>(), m["context"].get<int>(), m["kv_bytes_per_token"].get<int>());
  }
  return kDone;
}

}  // namespace

void add_models(CLI::App& app, Action& action) {
  auto json = std::make_shared<bool>(false);
  CLI::App* c = app.add_subcommand("models", "Models known by name, and where they are");
  c->add_flag("--json", *json, "One JSON document on standard output");
  c->footer("Example: fovea models");
  c->callback([json, &action] { action = [json] { return list_models(*json); }; });
}

}  // namespace fovea::app
