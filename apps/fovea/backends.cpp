// SPDX-License-Identifier: Apache-2.0
// `fovea backends`: what there is, row by row, and whether this machine can run it.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "fovea/command.h"
#include "fovea/row_text.h"
#include "fovea/select/registry.h"

namespace fovea::app {
namespace {

using Json = nlohmann::ordered_json;

// Why a row cannot run on a machine; empty if it can.
std::string obstacle(const Row& row, const Device& device) {
  if (row.devices.type != device.id.type)
    return fmt::format("needs another device than {}", name_of(device));
  if (device.id.type == DeviceType::kCpu && device.cpu_level < row.devices.min_level) {
    return fmt::format("needs {}, this machine has {}", name_of(row.devices.min_level),
                       name_of(device.cpu_level));
  }
  return {};
}

std::string joined(const Json& names) {
  std::string out;
  for (const auto& name : names) out += (out.empty() ? "" : " ") + name.get<std::string>();
  return out;
}

void print_row(const AttentionBackend& backend, const Row& row, const std::string& obstacle) {
  const Json j = row_json(row);
  fmt::print("{} / {}\n", backend.name(), row.name);
  fmt::print("  device     {}, {}\n", j["device"].get<std::string>(),
             obstacle.empty() ? "runs here" : "does not run here: " + obstacle);
  fmt::print("  dtypes     {} (cache: {}; output: {})\n", joined(j["dtypes"]),
             joined(j["kv_dtypes"]), joined(j["output_dtypes"]));
  fmt::print("  sizes      heads {}; query heads per KV head {}; blocks {}\n",
             sizes_text(row.head_sizes), sizes_text(row.group_sizes), sizes_text(row.block_sizes));
  fmt::print("  features   {}\n", joined(j["features"]));
  fmt::print("  layouts    {}\n", joined(j["layouts"]));
  fmt::print("  graphs     {}, rank {}\n", j["graph_support"].get<std::string>(), row.rank);
}

// A table for the documentation, one line a row; nothing in it depends on this machine.
int print_markdown() {
  fmt::print(
      "| backend | dtypes | cache | head sizes | heads per KV head | blocks | features | layouts "
      "|\n");
  fmt::print("|---|---|---|---|---|---|---|---|\n");
  const Registry registry = Registry::builtin();
  for (const AttentionBackend* backend : registry.all()) {
    for (const Row& row : backend->rows()) {
      const Json j = row_json(row);
      fmt::print("| `{}` ({}) | {} | {} | {} | {} | {} | {} | {} |\n", backend->name(), row.name,
                 joined(j["dtypes"]), joined(j["kv_dtypes"]), sizes_text(row.head_sizes),
                 sizes_text(row.group_sizes), sizes_text(row.block_sizes), joined(j["features"]),
                 joined(j["layouts"]));
    }
  }
  return kDone;
}

int list_backends(bool json) {
  const Registry registry = Registry::builtin();
  const Device device = Device::host();
  Json out;
  out["machine"] = name_of(device);
  out["backends"] = Json::array();
  for (const AttentionBackend* backend : registry.all()) {
    Json rows = Json::array();
    for (const Row& row : backend->rows()) {
      const std::string against = obstacle(row, device);
      if (!json) print_row(*backend, row, against);
      rows.push_back(row_json(row));
      rows.back()["runs_here"] = against.empty();
      if (!against.empty()) rows.back()["obstacle"] = against;
    }
    out["backends"].push_back({{"name", backend->name()}, {"rows", rows}});
  }
  if (json) fmt::print("{}\n", out.dump());
  return kDone;
}

}  // namespace

void add_backends(CLI::App& app, Action& action) {
  auto json = std::make_shared<bool>(false);
  auto markdown = std::make_shared<bool>(false);
  auto device = std::make_shared<std::string>("cpu");
  CLI::App* c = app.add_subcommand("backends", "Every attention backend, row by row");
  c->add_option("--device", *device, "The machine to ask for")
      ->check(CLI::IsMember({"cpu"}))
      ->capture_default_str();
  c->add_flag("--json", *json, "One JSON document on standard output");
  c->add_flag("--markdown", *markdown, "A table for the documentation")->excludes("--json");
  c->footer("Example: fovea backends --json");
  c->callback([json, markdown, device, &action] {
    action = [json, markdown] { return *markdown ? print_markdown() : list_backends(*json); };
  });
}

}  // namespace fovea::app
