// SPDX-License-Identifier: Apache-2.0
#include "call_json.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "call_schema.h"
#include "call_words.h"
#include "fovea/base/error.h"
#include "fovea/select/registry.h"
#include "sampler.h"

namespace fovea::conformance {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kLeast =
    R"({"version": 1, "layer": {"num_heads": 4, "num_kv_heads": 2, "head_size": 8,)"
    R"( "head_size_v": 6}, "requests": [[2, 5]]})";

std::vector<Reason> reasons_against(std::string_view text) {
  try {
    from_document(text);
  } catch (const InputError& e) {
    return e.reasons();
  }
  return {};
}

// The schema as a list.
struct Field {
  std::string path;
  std::string kind;
  bool is_required = false;
};
std::string kind_of(bool) { return "bool"; }
std::string kind_of(int) { return "int32"; }
std::string kind_of(std::int64_t) { return "int64"; }
std::string kind_of(std::uint64_t) { return "uint64"; }
std::string kind_of(float) { return "float"; }
template <Choice E>
std::string kind_of(E) {
  return "word";
}
std::string kind_of(const std::vector<Request>&) { return "requests"; }
std::string kind_of(const std::vector<std::vector<Request>>&) { return "steps"; }
std::string kind_of(const std::vector<int>&) { return "ints"; }
std::string kind_of(const std::vector<std::vector<int>>&) { return "lists of ints"; }
std::string kind_of(const FlagSet<Poison>&) { return "poison"; }
std::string kind_of(const Rule&) { return "rule"; }
std::string kind_of(const Strides&) { return "strides"; }

struct Lister {
  std::vector<Field>& all;
  std::string prefix = {};

  void version(int) { all.push_back({"version", "version", true}); }
  template <class T>
  void required(std::string_view name, const T& value) {
    all.push_back({prefix + std::string(name), kind_of(value), true});
  }
  template <class T>
  void optional(std::string_view name, const T& value) {
    all.push_back({prefix + std::string(name), kind_of(value), false});
  }
  template <class T>
  void optional(std::string_view name, const T& value, const T&) {
    optional(name, value);
  }
  template <class F>
  void group(std::string_view name, F&& fields) {
    all.push_back({prefix + std::string(name), "group", name == "layer"});
    Lister inner{all, prefix + std::string(name) + "."};
    fields(inner);
  }
};
std::vector<Field> schema() {
  std::vector<Field> all;
  Lister lister{all};
  Call call;
  visit_call(lister, call);
  return all;
}

Json::json_pointer pointer(std::string path) {
  std::ranges::replace(path, '.', '/');
  return Json::json_pointer("/" + path);
}

// A complete document in which the field is this text.
std::string with(const std::string& path, std::string_view text) {
  Json document = Json::parse(to_document(from_document(kLeast)));
  document[pointer(path)] = "@";
  std::string all = document.dump();
  return all.replace(all.find("\"@\""), 3, text);
}

const std::vector<std::string_view> kNoNumber = {"null", "true", "\"1\"", "[]", "[1]", "{}"};
const std::vector<std::string_view> kNoInteger = {"1.5", "1.0", "1e2", "1e300"};
const std::vector<std::string_view> kNoList = {"null", "true", "1", "\"\"", "{}"};

std::vector<std::string_view> wrong_values(const std::string& kind) {
  const auto join = [](std::vector<std::string_view> a, const auto&... more) {
    (a.insert(a.end(), more.begin(), more.end()), ...);
    return a;
  };
  using Texts = std::vector<std::string_view>;
  const std::map<std::string, Texts> all = {
      {"version", {"null", "true", "\"1\"", "0", "2", "-1", "1.0", "[1]"}},
      {"group", {"null", "false", "1", "\"\"", "[]", "[{}]"}},
      {"bool", {"null", "0", "1", "\"true\"", "[]", "{}"}},
      {"int32", join(kNoNumber, kNoInteger, Texts{"2147483648", "-2147483649", "1e10"})},
      {"int64", join(kNoNumber, kNoInteger, Texts{"9223372036854775808", "-9223372036854775809"})},
      {"uint64", join(kNoNumber, kNoInteger, Texts{"-1", "18446744073709551616"})},
      {"float", join(kNoNumber, Texts{"1e39", "-1e39", "3.5e38"})},
      {"word", {"null", "true", "0", "\"\"", "\"F32\"", "\"x\"", "[]", "{}"}},
      {"requests",
       join(kNoList, Texts{"[1]", "[null]", "[{}]", "[[]]", "[[1]]", "[[1,2,3]]", "[[1,2],[3]]",
                           "[[\"1\",2]]", "[[1,2.0]]", "[[1,2147483648]]", "[[-2147483649,1]]"})},
      {"steps", join(kNoList, Texts{"[1]", "[null]", "[{}]", "[[1]]", "[[[]]]", "[[[1]]]",
                                    "[[[1,2,3]]]", "[[],[[1,true]]]", "[[[1,1e9]]]"})},
      {"ints", join(kNoList, Texts{"[null]", "[\"1\"]", "[1.5]", "[[1]]", "[0,2147483648]"})},
      {"lists of ints", join(kNoList, Texts{"[1]", "[null]", "[[null]]", "[[1.5]]", "[[[1]]]",
                                            "[[],[2147483648]]"})},
      {"poison", join(kNoList, Texts{"[1]", "[null]", "[\"\"]", "[\"tails\",\"tails\"]", "[[]]"})},
      {"strides", join(kNoList, Texts{"[]", "[1]", "[1,2,3]", "[1,null]", "[[1,2]]", "[1.5,2]",
                                      "[1,9223372036854775808]"})},
      {"rule",
       {"null", "1", "\"normal\"", "[]", R"({"rule":1})", R"({"rule":"Normal"})",
        R"({"rule":null})", R"({"seed":-1})", R"({"seed":1.5})", R"({"seed":18446744073709551616})",
        R"({"seed":"1"})", R"({"rule":"constant","value":"1"})",
        R"({"rule":"constant","value":true})", R"({"rule":"constant","value":[1]})",
        R"({"rule":"constant","seed":1})", R"({"value":1})", R"({"rule":"index","value":1})",
        R"({"rule":"explicit","seed":1})", R"({"x":1})"}},
  };
  return all.at(kind);
}

TEST(CallSchema, EveryFieldRefusesWhatItCannotHold) {
  int refused = 0;
  for (const Field& field : schema()) {
    for (const std::string_view value : wrong_values(field.kind)) {
      const std::vector<Reason> reasons = reasons_against(with(field.path, value));
      ASSERT_EQ(reasons.size(), 1U) << field.path << " = " << value << ":\n" << to_text(reasons);
      EXPECT_TRUE(reasons[0].field.starts_with(field.path)) << reasons[0].field << ' ' << value;
      EXPECT_NE(reasons[0].wanted, "") << field.path;
      EXPECT_NE(reasons[0].supported, "") << field.path;
      ++refused;
    }
  }
  EXPECT_GT(refused, 300);
}

TEST(CallSchema, EveryFieldButSomeHasADefault) {
  const Call least = from_document(kLeast);
  Call expected;
  expected.problem = {
      .requests = {{2, 5}}, .num_heads = 4, .num_kv_heads = 2, .head_size = 8, .head_size_v = 6};
  EXPECT_TRUE(least == expected);
  for (const Field& field : schema()) {
    Json document = Json::parse(to_document(least));
    const std::size_t dot = field.path.find('.');
    Json& object = dot == std::string::npos ? document : document[field.path.substr(0, dot)];
    ASSERT_EQ(object.erase(field.path.substr(dot + 1)), 1U);
    const std::vector<Reason> reasons = reasons_against(document.dump());
    if (!field.is_required) {
      ASSERT_EQ(to_text(reasons), "") << field.path;
      EXPECT_TRUE(from_document(document.dump()) == least) << field.path;
    } else if (field.kind == "group") {
      EXPECT_EQ(reasons.size(), 4U);  // what it must hold
    } else {
      ASSERT_EQ(reasons.size(), 1U) << field.path;
      EXPECT_EQ(reasons[0].field, field.path);
      EXPECT_EQ(reasons[0].wanted, "missing");
    }
  }
}

TEST(CallSchema, TypesFollowTheLayer) {
  Json document = Json::parse(kLeast);
  document["layer"]["dtype"] = "bf16";
  const Case c = from_document(document.dump()).problem;
  EXPECT_EQ(c.kv_dtype, DType::kBF16);
  EXPECT_EQ(c.out_dtype, DType::kBF16);
}

TEST(CallSchema, UnknownFieldsAreRefusedInEveryObject) {
  std::vector<std::string> objects = {"", "tensors.q.", "tensors.k.", "tensors.v."};
  for (const Field& field : schema())
    if (field.kind == "group") objects.push_back(field.path + ".");
  for (const std::string& object : objects) {
    for (const std::string_view name : {"num_head", "", "Seed", "\xC3\xA9"}) {
      Json document = Json::parse(to_document(from_document(kLeast)));
      (object.empty() ? document : document[pointer(object.substr(0, object.size() - 1))])[name] =
          1;
      const std::vector<Reason> reasons = reasons_against(document.dump());
      ASSERT_EQ(reasons.size(), 1U) << object << name << ": " << to_text(reasons);
      const bool is_ascii = name != "\xC3\xA9";
      EXPECT_EQ(reasons[0].field, object + (is_ascii ? std::string(name) : R"("\u00e9")"));
      EXPECT_EQ(reasons[0].wanted, "unknown field");
    }
  }
  const std::vector<Reason> reasons = reasons_against(
      R"({"version": 1, "layer": {"num_head": 4, "num_kv_heads": 2, "head_size": "8",)"
      R"( "head_size_v": 6}, "request": []})");
  EXPECT_EQ(to_text(reasons),
            "layer.num_heads: missing, expected a value\n"
            "layer.head_size: \"8\", expected a whole number from -2147483648 to 2147483647\n"
            "layer.num_head: unknown field, expected one of num_heads, num_kv_heads, head_size, "
            "head_size_v, scale, logits_soft_cap, sliding_window, dtype, output_dtype, kv_dtype, "
            "non_causal\n"
            "requests: missing, expected a value\n"
            "request: unknown field, expected one of version, layer, requests, causal, steps, "
            "tensors, streams, poison, cache, placement, outputs, execution, origin");
}

TEST(CallSchema, IsTheOneThatIsPublished) {
  std::ifstream in(FOVEA_TEST_DATA "/../../docs/call_file.md");
  const std::string page((std::istreambuf_iterator<char>(in)), {});
  ASSERT_GT(page.size(), 1000U);
  for (const Field& field : schema()) {
    const std::string name = field.path.substr(field.path.find('.') + 1);
    EXPECT_NE(page.find("`" + name + "`"), std::string::npos) << field.path;
  }
  const auto expect_words = [&](const auto& words) {
    for (const auto& w : words)
      EXPECT_NE(page.find("`\"" + std::string(w.word) + "\"`"), std::string::npos) << w.word;
  };
  expect_words(kWords<DType>);
  expect_words(kWords<RuleKind>);
  expect_words(kWords<Poison>);
  expect_words(kWords<Strided>);
  expect_words(kWords<CacheForm>);
  expect_words(kWords<CacheLayout>);
  expect_words(kWords<LseBase>);
  expect_words(kWords<LseLayout>);
  for (const auto& w : kWords<Relation>)
    EXPECT_NE(page.find("\"" + std::string(w.word) + "\""), std::string::npos) << w.word;
}

TEST(CallDocument, NoVersionIsTakenForAnother) {
  for (const char* text : {R"({"version": 2, "new": {}})", R"({"new": {}})"}) {
    const std::vector<Reason> reasons = reasons_against(text);
    ASSERT_EQ(reasons.size(), 1U);
    EXPECT_EQ(reasons[0].field, "version");
    EXPECT_EQ(reasons[0].supported, "1");
  }
}

TEST(CallDocument, RefusesWhatIsNoDocument) {
  const auto nested = [](std::size_t depth) {
    return R"({"version": 1, "steps": )" + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  std::string many_fields = "{\"version\": 1";
  for (int i = 0; i < 100; ++i) many_fields += ", \"f" + std::to_string(i) + "\": 0";
  many_fields += "}";
  std::string many_values = R"({"version": 1, "streams": [0)";
  for (int i = 0; i < 2'200'000; ++i) many_values += ",0";
  many_values += "]}";
  const std::vector<std::pair<std::string, std::string_view>> all = {
      {"", "no JSON"},
      {"null", "document: null, expected an object"},
      {"[]", "document: [], expected an object"},
      {"[1, 2", "no JSON at byte"},
      {"{\"version\": NaN}", "no NaN"},
      {"{\"version\": Infinity}", "no NaN"},
      {"{\"version\": 1e999}", "beyond float64"},
      {"{\"version\": 1,}", "no JSON"},
      {"{\"version\": 1} {}", "no JSON"},
      {"{\"version\": 1} // more", "no JSON"},
      {std::string("{\"version\": 1}\0", 15), "a zero byte"},
      {"\xEF\xBB\xBF{\"version\": 1}", "byte order mark"},
      {"{\"version\": \"\xFF\"}", "no JSON"},
      {"{\"version\": 1, \"version\": 1}", "the field \"version\" twice"},
      {R"({"version": 1, "layer": {"scale": 1, "scale": 2}})", "the field \"scale\" twice"},
      {nested(100), "deeper nesting"},
      {nested(1'000'000), "deeper nesting"},
      {R"({"version": 1, "steps": )" + std::string(1'000'000, '['), "deeper nesting"},
      {many_fields, "an object of more fields"},
      {many_values, "more values"},
      {R"({"version": 1, "layer": ")" + std::string(1'000'000, 'x') + "\"}", "xxx..."},
  };
  for (const auto& [text, says] : all) {
    const std::string said = to_text(reasons_against(text));
    EXPECT_NE(said.find(says), std::string::npos)
        << "'" << said << "' does not say '" << says << "'";
    EXPECT_LT(said.size(), 1000U);
  }
}

TEST(CallDocument, NumbersAreKeptToTheBit) {
  Call call = from_document(kLeast);
  const auto back = [&] { return from_document(to_document(call)); };
  for (const float x : {0.1F, -0.0F, 1e-45F, FLT_MIN, FLT_MAX, -FLT_MAX, 0.088388346F, 1e10F}) {
    call.problem.scale = x;
    call.problem.soft_cap = x;
    EXPECT_EQ(std::signbit(back().problem.scale), std::signbit(x));
    EXPECT_TRUE(back() == call) << x;
  }
  for (const double x : {0.1, -0.0, 5e-324, DBL_MAX, -DBL_MAX, 1.0 / 3, 1e23}) {
    call.k = Constant{x};
    EXPECT_EQ(std::signbit(std::get<Constant>(back().k).value), std::signbit(x));
    EXPECT_TRUE(back() == call) << x;
  }
  for (const std::uint64_t x : {std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max()}) {
    call.seed = x;
    call.q = Normal{x};
    EXPECT_TRUE(back() == call) << x;
  }
  // A number in the text may have more digits than a float: it is rounded as a float64 first.
  EXPECT_EQ(from_document(with("layer.scale", "0.1000000000000000055")).problem.scale, 0.1F);
  EXPECT_EQ(from_document(with("layer.scale", "3")).problem.scale, 3.0F);
}

// 0 turns the cap off: a number that is not 0 must not become it.
TEST(CallDocument, NothingBecomesZeroUnseen) {
  for (const char* small : {"1e-46", "-1e-46", "1e-60", "1e-400"}) {
    EXPECT_THROW(from_document(with("layer.logits_soft_cap", small)), InputError) << small;
    EXPECT_THROW(from_document(with("layer.scale", small)), InputError) << small;
  }
  EXPECT_EQ(from_document(with("layer.logits_soft_cap", "0.0e-400")).problem.soft_cap, 0);
}

TEST(CallDocument, RandomCallsComeBack) {
  int calls = 0;
  const Registry registry = Registry::builtin();
  for (const AttentionBackend* backend : registry.all()) {
    for (const fovea::Row& row : backend->rows()) {
      for (std::uint64_t seed = 0; seed < 1000; ++seed, ++calls) {
        Call call = draw_call(row, seed);
        const auto num_reqs = static_cast<int>(call.problem.requests.size());
        if (seed % 2 == 0) call.k = Constant{static_cast<double>(seed) / 7};
        if (seed % 3 == 0) call.v = Index{};
        if (seed % 4 == 0) call.steps = {call.problem.requests, call.problem.requests};
        if (seed % 5 == 0) call.q = Explicit{};
        if (seed % 6 == 0) call.poison = {Poison::kTails, Poison::kPadding};
        if (seed % 7 == 0) call.poison = {};
        if (seed % 8 == 0)
          for (int r = 0; r < num_reqs; ++r) call.streams.push_back(num_reqs - r);
        const std::string document = to_document(call);
        ASSERT_TRUE(from_document(document) == call) << document;
        ASSERT_EQ(to_document(from_document(document)), document);
      }
    }
  }
  EXPECT_GE(calls, 2000);
}

}  // namespace
}  // namespace fovea::conformance
