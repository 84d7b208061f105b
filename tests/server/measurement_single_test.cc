// Calls whose answer is one frame, and those where it does not fit.

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/server/measurement_test_server.h"

namespace tenon::server {
namespace {

constexpr int64_t kRows = 24;

v1::MeasureHeader PlainHeader() { return Header(MakeMatrix(kRows, 5, 1), {"tnc", "stress"}, 5); }

TEST(SingleTest, ASmallCallIsOneFrameAndLargerOnesAreNot) {
  TestServer server;
  v1::MeasureHeader header = PlainHeader();
  for (int i = 0; i < 5; ++i) {
    const int64_t rows = i == 2 ? kRows + 1 : kRows;
    *header.mutable_inline_projections()->add_projections() =
        InlineProjection(i, MakeMatrix(rows, 2, static_cast<uint32_t>(i)));
  }
  MeasureClient single(&server);
  single.Send(header);
  const auto one = single.ReadRest();  // no half-close is needed
  EXPECT_EQ(Summary(single.Finish()), "OK");
  ASSERT_EQ(one.size(), 1u);
  ASSERT_EQ(one[0].single().items_size(), 5);
  EXPECT_TRUE(one[0].single().has_accepted());
  for (int i = 0; i < 5; ++i) {
    const v1::MeasureItem& item = one[0].single().items(i);
    EXPECT_EQ(item.has_error(), i == 2);
    EXPECT_EQ(i == 2 ? item.error().index() : item.scores().index(), i);
  }
  EXPECT_EQ(one[0].single().items(2).error().error().field(),
            "header.inline_projections.projections[2].spec.shape[0]");
  EXPECT_EQ(one[0].single().summary().scored_count(), 4);

  header.set_return_local(true);
  MeasureClient many(&server);
  many.Send(header);
  const auto frames = many.ReadRest();
  EXPECT_EQ(Summary(many.Finish()), "OK");
  ASSERT_EQ(frames.size(), 7u);
  EXPECT_TRUE(frames[0].has_accepted());
  EXPECT_EQ(frames[3].item_error().index(), 2);
  EXPECT_TRUE(frames[6].has_summary());
}

// What is wrong with one projection in the header spoils neither the plan nor the others.
TEST(SingleTest, ABadFirstProjectionIsAnErrorInItsPlace) {
  TestServer server;
  v1::MeasureHeader header = PlainHeader();
  auto* projections = header.mutable_inline_projections();
  for (int i = 0; i < 3; ++i) {
    *projections->add_projections() = InlineProjection(i, MakeMatrix(kRows, 3, 1));
  }
  // Were it planned for, no budget would hold it.
  projections->mutable_projections(0)->mutable_spec()->set_shape(1, 4'000'000);
  projections->mutable_projections(1)->mutable_spec()->set_shape(0, int64_t{1} << 40);
  MeasureClient client(&server);
  client.Send(header);
  const auto frames = client.ReadRest();
  EXPECT_EQ(Summary(client.Finish()), "OK");
  ASSERT_EQ(frames.size(), 1u);
  ASSERT_EQ(frames[0].single().items_size(), 3);
  EXPECT_TRUE(frames[0].single().items(0).has_error());
  EXPECT_TRUE(frames[0].single().items(1).has_error());
  EXPECT_TRUE(frames[0].single().items(2).has_scores());
}

// Messages grow with the measures and not with their square, and together they fit as well.
TEST(SingleTest, ManySigmasFitInWhatAClientTakes) {
  TestServer server;
  constexpr int kSpecs = 1000, kFew = 8;
  v1::MeasureHeader header = Header(MakeMatrix(kFew, 3, 1), {});
  for (int i = 0; i < kSpecs; ++i) {
    v1::MeasureSpec* spec = header.add_specs();
    spec->set_id("kl_divergence");
    spec->mutable_kl_divergence()->set_sigma(0.1 + 0.001 * i);
  }
  *header.mutable_inline_projections()->add_projections() =
      InlineProjection(0, MakeMatrix(kFew, 2, 1));
  const auto run = [&] {
    MeasureClient client(&server);
    client.Send(header);
    auto frames = client.ReadRest();
    EXPECT_EQ(Summary(client.Finish()), "OK");
    return frames;
  };
  const auto one = run();
  ASSERT_EQ(one.size(), 1u);
  const v1::MeasureSingle& single = one[0].single();
  EXPECT_EQ(single.items(0).scores().specs_size(), kSpecs);
  // A limit that the answers keep to by themselves, but not with the summary, whose size is known
  // only in the end.
  const auto summary = static_cast<int64_t>(single.summary().ByteSizeLong());
  server.state().limits.max_message_bytes = static_cast<int64_t>(single.ByteSizeLong()) - 1000;
  ASSERT_GT(summary, (int64_t{256} << 10) + 2000);
  const auto frames = run();
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_TRUE(frames[0].has_accepted());
  EXPECT_TRUE(frames[1].has_scores());
  EXPECT_TRUE(frames[2].has_summary());
  EXPECT_TRUE(server.AllReleased());
}

TEST(AnswerSizeTest, WhatNoMessageHoldsIsRefusedWhereItIsKnown) {
  TestServer server;
  v1::MeasureHeader header = PlainHeader();
  const v1::MeasureRequest projection = Frame(InlineProjection(0, MakeMatrix(kRows, 2, 1)));
  const auto run = [&](int64_t limit) {
    server.state().limits.max_message_bytes = limit;
    MeasureClient client(&server);
    client.Send(header);
    client.Send(projection);
    auto frames = client.ReadAll();
    return std::make_pair(std::move(frames), Summary(client.Finish()));
  };
  const std::string refusal = "FAILED_PRECONDITION EXCEEDS_SERVER_LIMIT header.specs";
  const auto [frames, status] = run(int64_t{4} << 20);
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_EQ(run(100).second, refusal);
  // Scores with local arrays grow beyond what was accepted.
  header.set_return_local(true);
  const auto [bad, ended] = run(static_cast<int64_t>(frames[0].ByteSizeLong()) + 100);
  EXPECT_EQ(ended, "OK");
  ASSERT_EQ(bad.size(), 3u);
  EXPECT_EQ(Summary(bad[1].item_error().error()), refusal);
  EXPECT_TRUE(server.AllReleased());
}

TEST(SingleTest, AnAnswerTooLargeForOneMessageComesInTheLongForm) {
  TestServer server;
  server.state().limits.max_message_bytes = 300'000;
  v1::MeasureHeader header = PlainHeader();
  constexpr int kCount = 100;
  for (int i = 0; i < kCount; ++i) {
    *header.mutable_inline_projections()->add_projections() =
        InlineProjection(i, MakeMatrix(kRows, 1, static_cast<uint32_t>(i)));
  }
  MeasureClient client(&server);
  client.Send(header);
  const auto frames = client.ReadRest();
  EXPECT_EQ(Summary(client.Finish()), "OK");
  ASSERT_EQ(frames.size(), kCount + 2u);
  EXPECT_TRUE(frames[0].has_accepted());
  for (int i = 0; i < kCount; ++i) {
    EXPECT_EQ(frames[static_cast<size_t>(i) + 1].scores().index(), i);
  }
  EXPECT_EQ(frames.back().summary().scored_count(), kCount);
  EXPECT_TRUE(server.AllReleased());
}

}  // namespace
}  // namespace tenon::server
