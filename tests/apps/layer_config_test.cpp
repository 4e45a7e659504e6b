// SPDX-License-Identifier: Apache-2.0
#include "fovea/layer_config.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "apps/temp_file.h"
#include "fovea/command.h"

namespace fovea::app {
namespace {

// The sentence that refuses a text, empty if it is taken.
std::string refusal(const std::string& text) {
  try {
    parse_layer_config(text, "layer.json");
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

TEST(LayerConfig, AnEmptyObjectIsTheDefault) {
  const LayerFlags read = parse_layer_config("{}", "x"), none;
  EXPECT_EQ(read.heads, none.heads);
  EXPECT_EQ(read.block_size, none.block_size);
  EXPECT_EQ(layer_spec_of(read).num_heads, layer_spec_of(none).num_heads);
}

TEST(LayerConfig, EveryFlagHasItsField) {
  const LayerFlags f = parse_layer_config(R"({
    "heads": "16/4", "head-size": "192/128", "dtype": "f16", "kv-dtype": "f32",
    "block-size": 32, "window": 7, "window-pair": "6,0", "chunk": 64, "lookback": 1,
    "spans": "3-6,9-12", "clamp": true, "softcap": 30.5, "alibi": true, "sinks": true,
    "attn-type": "encoder", "non-causal": true, "lse": true, "q-len": "1-8",
    "kv-len": "4096,100", "cache-layout": "NHD"
  })",
                                          "x");
  EXPECT_EQ(f.heads, "16/4");
  EXPECT_EQ(f.head_size, "192/128");
  EXPECT_EQ(f.dtype, "f16");
  EXPECT_EQ(f.kv_dtype, "f32");
  EXPECT_EQ(f.block_size, 32);
  EXPECT_EQ(f.window, 7);
  EXPECT_EQ(f.window_pair, "6,0");
  EXPECT_EQ(f.chunk, 64);
  EXPECT_EQ(f.lookback, 1);
  EXPECT_EQ(f.spans, "3-6,9-12");
  EXPECT_EQ(f.softcap, 30.5F);
  EXPECT_TRUE(f.clamp && f.alibi && f.sinks && f.non_causal && f.lse);
  EXPECT_EQ(f.attn_type, "encoder");
  EXPECT_EQ(f.q_len, "1-8");
  EXPECT_EQ(f.kv_len, "4096,100");
  EXPECT_EQ(f.cache_layout, "NHD");
}

TEST(LayerConfig, TextsThatAreNumbersMayBeWrittenAsOnes) {
  const LayerFlags f = parse_layer_config(
      R"({"heads": 32, "head-size": 64, "q-len": 1, "kv-len": 4096, "softcap": 30})", "x");
  EXPECT_EQ(f.heads, "32");
  EXPECT_EQ(f.head_size, "64");
  EXPECT_EQ(f.q_len, "1");
  EXPECT_EQ(f.kv_len, "4096");
  EXPECT_EQ(f.softcap, 30.0F);
}

TEST(LayerConfig, RefusalsNameFieldLineValueAndWayOut) {
  struct Want {
    const char *text, *message;
  };
  const Want table[] = {
      {"{\"heads\": 32,\n \"head-siz\": 64}",
       "layer.json, line 2: there is no field \"head-siz\", leave it out (fields: heads, "
       "head-size, dtype, kv-dtype, block-size, window, window-pair, chunk, lookback, spans, "
       "clamp, softcap, alibi, sinks, attn-type, non-causal, lse, q-len, kv-len, cache-layout)"},
      {"{\"window\": 4,\n\n \"window\": 4}",
       "layer.json, line 3: the field \"window\" is there twice, first in line 1, keep one of "
       "them"},
      {"{\"window\": \"4\"}",
       "layer.json, line 1: \"window\" is \"4\", give a whole number from -2147483648 to "
       "2147483647"},
      {"{\"block-size\":\n16.0}",
       "layer.json, line 1: \"block-size\" is 16.0, give a whole number from -2147483648 to "
       "2147483647"},
      {"{\"chunk\": 2147483648}",
       "layer.json, line 1: \"chunk\" is 2147483648, give a whole number from -2147483648 to "
       "2147483647"},
      {"{\"chunk\": 18446744073709551615}",
       "layer.json, line 1: \"chunk\" is 18446744073709551615, give a whole number from "
       "-2147483648 to 2147483647"},
      {"{\"lookback\": -2147483649}",
       "layer.json, line 1: \"lookback\" is -2147483649, give a whole number from -2147483648 to "
       "2147483647"},
      {"{\"heads\": 32.5}",
       "layer.json, line 1: \"heads\" is 32.5, give a number of heads, like 32 or \"32/8\""},
      {"{\"heads\": [32, 8]}",
       "layer.json, line 1: \"heads\" is a list, give a number of heads, like 32 or \"32/8\""},
      {"{\n\"kv-len\": {\"a\": {}}}",
       "layer.json, line 2: \"kv-len\" is an object, give a length, like 4096 or \"4096,100\""},
      {"{\"dtype\": 16}", "layer.json, line 1: \"dtype\" is 16, give \"f32\", \"f16\" or \"bf16\""},
      {"{\"sinks\": 1}", "layer.json, line 1: \"sinks\" is 1, give true or false"},
      {"{\"lse\": null}", "layer.json, line 1: \"lse\" is null, give true or false"},
      {"{\"softcap\": 1e39}",
       "layer.json, line 1: \"softcap\" is 1e+39, give a number that 32 bits hold"},
      {"{\"softcap\": 1e999}",
       "layer.json, line 1: a number is too large for 64 bits, give a smaller one"},
      {"{\"softcap\": \"30\"}",
       "layer.json, line 1: \"softcap\" is \"30\", give a number that 32 bits hold"},
      {"[]",
       "layer.json, line 1: this is [], give one JSON object, like {\"heads\": \"32/8\", "
       "\"head-size\": 128}"},
      {"[[1]]", "layer.json, line 1: this is nested, give one JSON object"},
      {"4",
       "layer.json, line 1: this is 4, give one JSON object, like {\"heads\": \"32/8\", "
       "\"head-size\": 128}"},
      {"",
       "layer.json, line 1: this is not JSON (at byte 1), give an object like {\"heads\": "
       "\"32/8\", \"head-size\": 128}"},
      {"{\"heads\": 32,\n}",
       "layer.json, line 2: this is not JSON (at byte 15), give an object like {\"heads\": "
       "\"32/8\", \"head-size\": 128}"},
      {"{} {}",
       "layer.json, line 1: this is not JSON (at byte 4), give an object like {\"heads\": "
       "\"32/8\", \"head-size\": 128}"},
  };
  for (const Want& w : table) EXPECT_EQ(refusal(w.text), w.message) << w.text;
}

TEST(LayerConfig, HostileTexts) {
  EXPECT_NE(refusal(std::string(100000, '[')), "");
  EXPECT_NE(refusal("{\"spans\": \"" + std::string("\xff\xfe") + "\"}"), "");
  const std::string nul("{\"heads\": \"\0\"}", 14);
  EXPECT_NE(refusal(nul), "");
  const std::string key = refusal("{\"" + std::string(5000, 'k') + "\": 1}");
  EXPECT_LT(key.size(), 500U);
  EXPECT_NE(key.find("kkk..."), std::string::npos) << key;
  for (std::size_t n = 0; n < 10; ++n)
    EXPECT_NE(refusal(std::string("{\"window\":").substr(0, n)), "") << n;
}

TEST(LayerConfig, Files) {
  const TempFile good("good.json", R"({"heads": "9/3"})"), bad("bad.json", "{\n\"x\": 1}");
  const TempFile large("large.json", std::string(std::size_t{2} << 20, ' '));
  EXPECT_EQ(read_layer_config(good.path()).heads, "9/3");
  const auto message = [](const std::string& path) {
    try {
      read_layer_config(path);
    } catch (const UsageError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(message(bad.path()).rfind(bad.path() + ", line 2: ", 0), 0U);
  EXPECT_EQ(message("/nonexistent/x.json"),
            "--config: '/nonexistent/x.json' cannot be read, give a readable file");
  EXPECT_NE(message(testing::TempDir()).find("cannot be read"), std::string::npos);
  EXPECT_NE(message(large.path()).find("larger than 1048576 bytes"), std::string::npos);
}

// 0 would mean: none.
TEST(LayerConfig, ANumberThatWouldBecomeZeroIsRefused) {
  for (const char* small : {"1e-60", "1e-400", "-1E-400", "0.1e-400 "})
    EXPECT_NE(refusal(fmt::format(R"({{"softcap": {}}})", small)), "") << small;
  EXPECT_EQ(refusal(R"({"softcap": 0.00e7, "window": 1})"), "");
  EXPECT_EQ(parse_layer_config(R"({"softcap": 0.0})", "x").softcap, 0);
}

// Opening a pipe would wait for a writer.
TEST(LayerConfig, APipeIsRefused) {
  const std::string path = testing::TempDir() + std::to_string(getpid()) + "_pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_THROW((void)read_layer_config(path), UsageError);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace fovea::app
