// SPDX-License-Identifier: Apache-2.0
// `fovea backends`: what there is, row by row, and whether this machine can run it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "fovea/command.h"
#include "fovea/row_text.h"
#include "fovea/select/registry.h"
#include "fovea/support_tables.h"

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

int print_markdown(bool full) {
  const Registry registry = Registry::builtin();
  fmt::print("{}", full ? support_page(registry.all()) : support_table(registry.all()));
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
  auto markdown = std::make_shared<std::string>();
  auto device = std::make_shared<std::string>("cpu");
  CLI::App* c = app.add_subcommand("backends", "Every attention backend, row by row");
  c->add_option("--device", *device, "The machine to ask for")
      ->check(CLI::IsMember({"cpu"}))
      ->capture_default_str();
  c->add_flag("--json", *json, "One JSON document on standard output");
  c->add_flag("--markdown{table}", *markdown,
              "A table for the documentation; --markdown=full: all that the rows say")
      ->check(CLI::IsMember({"table", "full"}))
      ->excludes("--json");
  c->footer("Example: fovea backends --json");
  c->callback([json, markdown, device, &action] {
    action = [json, markdown] {
      return markdown->empty() ? list_backends(*json) : print_markdown(*markdown == "full");
    };
  });
}

}  // namespace fovea::app
