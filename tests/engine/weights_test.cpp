// SPDX-License-Identifier: Apache-2.0
#include "weights.h"

#include <gtest/gtest.h>

#include <cmath>

#include "fovea/base/error.h"
#include "gguf_writer.h"

namespace fovea::engine {
namespace {

using test::GgufWriter;

template <class F>
InputError refused(F&& f) {
  try {
    f();
  } catch (const InputError& error) {
    return error;
  }
  ADD_FAILURE() << "accepted";
  return {"", "", ""};
}

TEST(ModelKeys, ReadsWithinLimits) {
  const auto bytes = GgufWriter("llama").value("llama.a", 7U).value("llama.b", 0.5F).bytes();
  const GgufFile file = GgufFile::parse(bytes, "f");
  ModelKeys keys(file);
  EXPECT_EQ(keys.integer("a", 7, 7), 7);
  EXPECT_EQ(refused([&] { keys.integer("a", 8, 9); }).argument(), "llama.a");
  EXPECT_EQ(refused([&] { keys.integer("a", 1, 6); }).given(), "7");
  EXPECT_EQ(keys.integer("c", 0, 9, 3), 3);
  EXPECT_NE(std::string(refused([&] { keys.integer("c", 0, 9); }).what()).find("llama.c"),
            std::string::npos);
  EXPECT_EQ(keys.positive("b"), 0.5);
  EXPECT_EQ(keys.positive("d", 2), 2);
  EXPECT_THROW(keys.positive("d"), InputError);
}

TEST(ModelKeys, RefusesNumbersThatAreNotPositive) {
  for (const float bad : {0.0F, -1.0F, NAN, INFINITY}) {
    const auto bytes = GgufWriter("llama").value("llama.a", bad).bytes();
    const GgufFile file = GgufFile::parse(bytes, "f");
    EXPECT_THROW(ModelKeys(file).positive("a", 1), InputError) << bad;
  }
}

TEST(ModelKeys, RefusesNumbersThatFloatDoesNotHold) {
  for (const double bad : {1e300, 1e-300}) {
    const auto bytes = GgufWriter("llama").value("llama.a", bad).bytes();
    const GgufFile file = GgufFile::parse(bytes, "f");
    EXPECT_EQ(ModelKeys(file).positive("a"), bad);
    EXPECT_EQ(refused([&] { ModelKeys(file).positive_float("a"); }).argument(), "llama.a");
  }
}

TEST(ModelKeys, NamesWhatNobodyRead) {
  const auto bytes = GgufWriter("llama")
                         .value("llama.read", 1U)
                         .value("llama.ignored", 1U)
                         .value("llama.logit_scale", 2.0F)
                         .value("general.other", 1U)
                         .bytes();
  const GgufFile file = GgufFile::parse(bytes, "f");
  ModelKeys keys(file);
  keys.integer("read", 0, 1);
  keys.ignore("ignored");
  const InputError error = refused([&] { keys.refuse_unread(); });
  EXPECT_NE(error.given().find("llama.logit_scale"), std::string::npos);
  EXPECT_EQ(error.given().find("ignored"), std::string::npos);
  keys.text("logit_scale2", "");
  EXPECT_THROW(keys.refuse_unread(), InputError);
  keys.positive("logit_scale");
  EXPECT_NO_THROW(keys.refuse_unread());
}

TEST(ModelKeys, ExpectsTheOnlyValue) {
  const auto bytes = GgufWriter("llama").value("llama.experts", 8U).bytes();
  const GgufFile file = GgufFile::parse(bytes, "f");
  ModelKeys keys(file);
  EXPECT_NO_THROW(keys.expect("absent", 0));
  EXPECT_NO_THROW(keys.expect("experts", 8));
  EXPECT_EQ(refused([&] { keys.expect("experts", 0); }).argument(), "llama.experts");
}

TEST(ModelTensors, ChecksShapesAndNamesWhatNobodyRead) {
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  GgufWriter writer("llama");
  writer.tensor("m", {2, 3}, GgmlType::kF32, test::bytes_of(values));
  writer.tensor("v", {6}, GgmlType::kF32, test::bytes_of(values));
  writer.tensor("blk.0.attn_q.bias", {6}, GgmlType::kF32, test::bytes_of(values));
  const auto bytes = writer.bytes();
  const GgufFile file = GgufFile::parse(bytes, "f");
  ModelTensors tensors(file);
  EXPECT_TRUE(tensors.has("m"));
  EXPECT_FALSE(tensors.has("n"));
  EXPECT_EQ(tensors.matrix("m", 2, 3).num_rows(), 2);
  EXPECT_EQ(refused([&] { tensors.matrix("m", 3, 2); }).given(), "[2, 3]");
  EXPECT_THROW(tensors.matrix("v", 2, 3), InputError);
  EXPECT_THROW(tensors.vector("absent", 6), InputError);
  EXPECT_EQ(tensors.vector("v", 6), values);
  EXPECT_NE(refused([&] { tensors.refuse_unread(); }).given().find("attn_q.bias"),
            std::string::npos);
  tensors.vector("blk.0.attn_q.bias", 6);
  EXPECT_NO_THROW(tensors.refuse_unread());
}

TEST(SourceOf, ReadsRows) {
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  const auto bytes =
      GgufWriter("llama").tensor("m", {3, 2}, GgmlType::kF32, test::bytes_of(values)).bytes();
  const GgufFile file = GgufFile::parse(bytes, "f");
  const MatrixSource source = source_of(file.require("m"));
  EXPECT_EQ(source.rows, 3);
  EXPECT_EQ(source.columns, 2);
  std::vector<float> rows(4);
  source.read(1, 3, rows);
  EXPECT_EQ(rows, (std::vector<float>{3, 4, 5, 6}));
}

}  // namespace
}  // namespace fovea::engine
