#include "server/content_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "backends/core/error.h"

namespace tenon::server {
namespace {

using Kind = ContentStore::Kind;
using std::chrono::seconds;

Tensor MakeTensor(std::vector<int64_t> shape, uint8_t first, DType dtype = DType::kUint8) {
  auto tensor = Tensor::Allocate({dtype, std::move(shape)});
  EXPECT_TRUE(tensor.ok()) << tensor.status();
  for (int64_t i = 0; i < tensor->buffer.size_bytes(); ++i) {
    tensor->buffer.as<uint8_t>()[i] = static_cast<uint8_t>(first + i);
  }
  return *std::move(tensor);
}

class ContentStoreTest : public ::testing::Test {
 protected:
  std::shared_ptr<const StoredContent> Put(Tensor tensor, ContentStore::PutOptions options = {},
                                           Kind kind = Kind::kDataset) {
    auto stored = store_.Put(kind, "", std::move(tensor), std::move(options), &created_);
    EXPECT_TRUE(stored.ok()) << stored.status();
    return stored.ok() ? *stored : nullptr;
  }
  Reason GetReason(const std::string& handle, Kind kind = Kind::kDataset) {
    const auto found = store_.Get(kind, "", handle);
    EXPECT_FALSE(found.ok());
    const ErrorDetails details = GetErrorDetails(found.status());
    EXPECT_EQ(details.fields.at(0).first, "handle");
    return details.reason;
  }

  static constexpr int64_t kEntry = ContentStore::kEntryBytes;

  MemoryBudget budget_{1000 + 3 * kEntry};
  ContentStore::TimePoint now_ = ContentStore::TimePoint(std::chrono::hours(1'000'000));
  ContentStore store_{&budget_, seconds(100), [this] { return now_; }};
  bool created_ = false;
};

TEST(ContentSha256Test, IsThatOfTheContract) {
  // printf 'tenon-tensor-v1\nuint8\n2,3\n\1\2\3\4\5\6' | sha256sum
  EXPECT_EQ(ContentSha256(MakeTensor({2, 3}, 1)),
            "1f4c895390a1690acbf8609a5fc81b0c7435bfb091e62bdeb00110cc2ffc49f7");
  // printf 'tenon-tensor-v1\nfloat32\n\n\1\2\3\4' | sha256sum: a scalar has no lengths
  EXPECT_EQ(ContentSha256(MakeTensor({}, 1, DType::kFloat32)),
            "bd86630d0865704b83a65c9153441ebbd0c1950fe145d58a243e52aadebc83d9");
}

TEST(ContentSha256Test, TypeAndShapeCount) {
  EXPECT_NE(ContentSha256(MakeTensor({2, 3}, 1)), ContentSha256(MakeTensor({3, 2}, 1)));
  EXPECT_NE(ContentSha256(MakeTensor({2, 3}, 1)),
            ContentSha256(MakeTensor({2, 3}, 1, DType::kInt8)));
}

TEST_F(ContentStoreTest, TheSameContentIsThereOnce) {
  const auto first = Put(MakeTensor({10, 10}, 1), {.display_name = "one"});
  EXPECT_TRUE(created_);
  EXPECT_EQ(first->handle, "datasets/" + ContentSha256(MakeTensor({10, 10}, 1)));
  const auto second = Put(MakeTensor({10, 10}, 1), {.display_name = "two"});
  EXPECT_FALSE(created_);
  EXPECT_EQ(first, second);
  EXPECT_EQ(second->display_name, "one");
  EXPECT_EQ(store_.bytes(), 100);
  EXPECT_EQ(store_.reserved_bytes(), 100 + kEntry);
  EXPECT_EQ(budget_.reserved_bytes(), 100 + kEntry);
}

TEST_F(ContentStoreTest, KindsAreApart) {
  const auto tensor = Put(MakeTensor({10}, 1), {}, Kind::kTensor);
  EXPECT_EQ(tensor->handle.substr(0, 8), "tensors/");
  EXPECT_EQ(GetReason(tensor->handle), Reason::kNotFound);
  EXPECT_EQ(GetReason("datasets/" + tensor->handle.substr(8)), Reason::kNotFound);
  EXPECT_TRUE(store_.Get(Kind::kTensor, "", tensor->handle).ok());
  EXPECT_TRUE(store_.List(Kind::kDataset, "").empty());
}

TEST_F(ContentStoreTest, AnExpectedHashIsChecked) {
  const auto refused = store_.Put(Kind::kTensor, "", MakeTensor({3}, 1),
                                  {.expected_sha256 = std::string(64, '0')}, &created_);
  ASSERT_FALSE(refused.ok());
  const ErrorDetails details = GetErrorDetails(refused.status());
  EXPECT_EQ(details.reason, Reason::kChecksumMismatch);
  EXPECT_EQ(details.fields.at(0).first, "expected_sha256");
  EXPECT_EQ(details.metadata.at("actual_sha256"), ContentSha256(MakeTensor({3}, 1)));
  EXPECT_EQ(budget_.reserved_bytes(), 0);
  std::string upper = ContentSha256(MakeTensor({3}, 1));
  for (char& digit : upper) digit = static_cast<char>(toupper(digit));
  Put(MakeTensor({3}, 1), {.expected_sha256 = upper});
  EXPECT_TRUE(created_);
}

TEST_F(ContentStoreTest, LongShapesAreReserved) {
  constexpr int64_t kRank = 150;
  const int64_t bytes = 1 + kEntry + (kRank - ContentStore::kEntryRank) * 8;
  const auto stored = Put(MakeTensor(std::vector<int64_t>(kRank, 1), 1));
  EXPECT_EQ(budget_.reserved_bytes(), bytes);
  EXPECT_EQ(store_.reserved_bytes(), bytes);
  EXPECT_EQ(ContentStore::EntryBytes(1, kRank), bytes);
}

TEST_F(ContentStoreTest, BytesAreReservedOnce) {
  auto reservation = budget_.Reserve(600 + kEntry);
  ASSERT_TRUE(reservation.ok());
  Put(MakeTensor({600}, 1), {.reservation = *std::move(reservation)});
  EXPECT_EQ(budget_.reserved_bytes(), 600 + kEntry);
  const auto refused =
      store_.Put(Kind::kDataset, "", MakeTensor({500 + 2 * kEntry}, 1), {}, &created_);
  EXPECT_EQ(GetErrorDetails(refused.status()).reason, Reason::kOverloaded);
  EXPECT_EQ(budget_.reserved_bytes(), 600 + kEntry);
  // The same content again gives its own reservation back.
  auto again = budget_.Reserve(400 + kEntry);
  ASSERT_TRUE(again.ok());
  Put(MakeTensor({600}, 1), {.reservation = *std::move(again)});
  EXPECT_EQ(budget_.reserved_bytes(), 600 + kEntry);
}

// The budget bounds the number of things that have next to no bytes themselves.
TEST_F(ContentStoreTest, TinyContentTakesItsPlaceOfTheBudget) {
  Put(MakeTensor({0, 1}, 1), {}, Kind::kTensor);
  Put(MakeTensor({0, 2}, 1), {}, Kind::kTensor);
  Put(MakeTensor({0, 3}, 1), {}, Kind::kTensor);
  EXPECT_EQ(budget_.reserved_bytes(), 3 * kEntry);
  const auto refused = store_.Put(Kind::kTensor, "", MakeTensor({0, 4}, 1), {}, &created_);
  EXPECT_EQ(GetErrorDetails(refused.status()).reason, Reason::kOverloaded);
}

TEST_F(ContentStoreTest, ContentExpiresUnlessItIsUsed) {
  const std::string by_default = Put(MakeTensor({4}, 1))->handle;
  const std::string longer =
      Put(MakeTensor({4}, 2), {.ttl = std::chrono::duration<double>(250)})->handle;
  const std::string longest =
      Put(MakeTensor({4}, 3), {.ttl = std::chrono::duration<double>(1e300)})->handle;
  EXPECT_EQ(store_.Describe(Kind::kDataset, "", longest)->expires, now_ + ContentStore::kMaxTtl);
  now_ += seconds(99);
  EXPECT_TRUE(store_.Get(Kind::kDataset, "", by_default).ok());
  now_ += seconds(99);
  EXPECT_TRUE(store_.Describe(Kind::kDataset, "", by_default).ok());  // no use
  now_ += seconds(1);
  EXPECT_EQ(GetReason(by_default), Reason::kNotFound);
  EXPECT_EQ(store_.bytes(), 8);
  EXPECT_EQ(budget_.reserved_bytes(), 8 + 2 * kEntry);
  now_ += seconds(51);
  EXPECT_EQ(GetReason(longer), Reason::kNotFound);
}

TEST_F(ContentStoreTest, WhatIsInUseStays) {
  auto content = Put(MakeTensor({50}, 1), {.ttl = std::chrono::duration<double>(1e-12)});
  const std::string handle = content->handle;
  EXPECT_EQ(store_.Describe(Kind::kDataset, "", handle)->active_uses, 1);
  auto other = store_.Get(Kind::kDataset, "", handle);
  EXPECT_EQ(store_.List(Kind::kDataset, "").at(0).active_uses, 2);
  auto copy = *other;
  EXPECT_EQ(store_.Describe(Kind::kDataset, "", handle)->active_uses, 2);
  content.reset();
  other->reset();
  now_ += seconds(1000);
  const ErrorDetails details = GetErrorDetails(store_.Delete(Kind::kDataset, "", handle).status());
  EXPECT_EQ(details.reason, Reason::kInUse);
  EXPECT_EQ(details.metadata.at("active_calls"), "1");
  store_.Evict(1000);
  EXPECT_EQ(store_.bytes(), 50);
  copy.reset();
  now_ += seconds(1);
  EXPECT_EQ(GetReason(handle), Reason::kNotFound);
  EXPECT_EQ(budget_.reserved_bytes(), 0);
}

TEST_F(ContentStoreTest, TheTimeToLiveBeginsWhenTheUseEnds) {
  auto content = Put(MakeTensor({50}, 1));
  const std::string handle = content->handle;
  now_ += seconds(1000);
  content.reset();
  now_ += seconds(99);
  EXPECT_TRUE(store_.Describe(Kind::kDataset, "", handle).ok());
  now_ += seconds(1);
  EXPECT_EQ(GetReason(handle), Reason::kNotFound);
  // The same content again may ask for less time than before.
  Put(MakeTensor({50}, 1));
  Put(MakeTensor({50}, 1), {.ttl = std::chrono::duration<double>(5)});
  now_ += seconds(5);
  EXPECT_EQ(GetReason(handle), Reason::kNotFound);
}

// A share may outlive the store.
TEST_F(ContentStoreTest, SharesNeedNoStore) {
  auto store = std::make_unique<ContentStore>(&budget_, seconds(100), [this] { return now_; });
  auto stored = store->Put(Kind::kDataset, "", MakeTensor({50}, 1), {}, &created_);
  ASSERT_TRUE(stored.ok());
  store.reset();
  EXPECT_EQ((*stored)->tensor.buffer.as<uint8_t>()[49], 50);
  EXPECT_EQ(budget_.reserved_bytes(), 50 + kEntry);
  stored->reset();
  EXPECT_EQ(budget_.reserved_bytes(), 0);
}

TEST_F(ContentStoreTest, HashingCanBeCancelled) {
  CancelToken cancel;
  cancel.Cancel();
  const auto refused =
      store_.Put(Kind::kDataset, "", MakeTensor({50}, 1), {.cancel = &cancel}, &created_);
  EXPECT_EQ(GetErrorDetails(refused.status()).reason, Reason::kClientCancelled);
}

TEST_F(ContentStoreTest, DeletedBytesAreFree) {
  const std::string handle = Put(MakeTensor({50}, 1))->handle;
  EXPECT_EQ(store_.Delete(Kind::kDataset, "", handle).value_or(0), 50);
  EXPECT_EQ(GetErrorDetails(store_.Delete(Kind::kDataset, "", handle).status()).reason,
            Reason::kNotFound);
  EXPECT_EQ(budget_.reserved_bytes(), 0);
}

TEST_F(ContentStoreTest, ListsTheMostRecentlyUsedFirst) {
  const std::string a = Put(MakeTensor({4}, 1))->handle;
  now_ += seconds(1);
  const std::string b = Put(MakeTensor({4}, 2))->handle;
  const std::string c = Put(MakeTensor({4}, 3))->handle;
  now_ += seconds(1);
  EXPECT_TRUE(store_.Get(Kind::kDataset, "", a).ok());
  const auto list = store_.List(Kind::kDataset, "");
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0].handle, a);
  EXPECT_EQ(list[1].handle, std::min(b, c));
  EXPECT_EQ(list[2].handle, std::max(b, c));
  EXPECT_EQ(list[0].created + seconds(2), list[0].last_used);
}

// What is only kept for later makes room, the least recently used first; what is in use stays.
TEST_F(ContentStoreTest, EvictsUnusedContentWhenWorkNeedsTheRoom) {
  budget_.SetReclaimer([this](int64_t bytes) { store_.Evict(bytes); });
  const std::string oldest = Put(MakeTensor({300}, 1))->handle;
  now_ += seconds(1);
  const std::string newer = Put(MakeTensor({300}, 2))->handle;
  now_ += seconds(1);
  const auto used = Put(MakeTensor({300}, 3));
  {
    const auto work = budget_.Reserve(200);
    ASSERT_TRUE(work.ok()) << work.status();
    EXPECT_EQ(GetReason(oldest), Reason::kNotFound);
    EXPECT_TRUE(store_.Describe(Kind::kDataset, "", newer).ok());
  }
  const auto more = budget_.Reserve(701 + 2 * kEntry);
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(GetErrorDetails(more.status()).reason, Reason::kOverloaded);
  EXPECT_EQ(GetReason(newer), Reason::kNotFound);
  EXPECT_TRUE(store_.Describe(Kind::kDataset, "", used->handle).ok());
  EXPECT_EQ(budget_.reserved_bytes(), 300 + kEntry);
}

TEST_F(ContentStoreTest, CountsLookUpsAndWhatItPutOut) {
  budget_.SetReclaimer([this](int64_t bytes) { store_.Evict(bytes); });
  const std::string dataset = Put(MakeTensor({300}, 1))->handle;
  const std::string tensor = Put(MakeTensor({200}, 2), {}, Kind::kTensor)->handle;
  EXPECT_TRUE(store_.Get(Kind::kDataset, "", dataset).ok());
  EXPECT_FALSE(store_.Get(Kind::kDataset, "", tensor).ok());
  EXPECT_TRUE(store_.Get(Kind::kTensor, "", tensor).ok());
  EXPECT_TRUE(store_.Get(Kind::kTensor, "", tensor).ok());
  ContentStore::AllCounters counters = store_.counters();
  EXPECT_EQ(counters.datasets.hits, 1);
  EXPECT_EQ(counters.datasets.misses, 1);
  EXPECT_EQ(counters.datasets.entries, 1);
  EXPECT_EQ(counters.datasets.bytes, 300);
  EXPECT_EQ(counters.tensors.hits, 2);
  EXPECT_EQ(counters.tensors.misses, 0);
  EXPECT_EQ(counters.tensors.bytes, 200);
  EXPECT_EQ(counters.resources.entries, 0);

  const auto everything = budget_.Reserve(1000 + 3 * kEntry);
  ASSERT_TRUE(everything.ok()) << everything.status();
  counters = store_.counters();
  EXPECT_EQ(counters.datasets.evictions, 1);
  EXPECT_EQ(counters.tensors.evictions, 1);
  EXPECT_EQ(counters.datasets.entries + counters.tensors.entries, 0);
}

TEST_F(ContentStoreTest, NewContentTakesThePlaceOfOld) {
  budget_.SetReclaimer([this](int64_t bytes) { store_.Evict(bytes); });
  for (uint8_t i = 0; i < 20; ++i) {
    ASSERT_NE(Put(MakeTensor({400}, i)), nullptr);
    now_ += seconds(1);
  }
  EXPECT_EQ(store_.List(Kind::kDataset, "").size(), 2u);
}

// Equal content of two owners is kept twice: neither sees, ages or deletes the other's.
TEST_F(ContentStoreTest, OwnersKnowNothingOfEachOther) {
  const auto put = [this](const std::string& owner, ContentStore::PutOptions options) {
    auto stored =
        store_.Put(Kind::kTensor, owner, MakeTensor({10}, 1), std::move(options), &created_);
    EXPECT_TRUE(stored.ok()) << stored.status();
    return (*stored)->handle;
  };
  const auto reason = [](const auto& result) { return GetErrorDetails(result.status()).reason; };
  const std::string handle = put("a", {.display_name = "of a"});
  EXPECT_EQ(reason(store_.Get(Kind::kTensor, "b", handle)), Reason::kNotFound);
  EXPECT_EQ(reason(store_.Get(Kind::kTensor, "", handle)), Reason::kNotFound);
  EXPECT_EQ(reason(store_.Describe(Kind::kTensor, "b", handle)), Reason::kNotFound);
  EXPECT_EQ(reason(store_.Delete(Kind::kTensor, "b", handle)), Reason::kNotFound);
  EXPECT_TRUE(store_.List(Kind::kTensor, "b").empty());
  EXPECT_EQ(store_.List(Kind::kTensor, std::nullopt).at(0).owner, "a");
  now_ += seconds(60);
  EXPECT_EQ(put("b", {}), handle);
  EXPECT_TRUE(created_);
  EXPECT_EQ(store_.Describe(Kind::kTensor, "b", handle)->display_name, "");
  EXPECT_EQ(store_.Describe(Kind::kTensor, "b", handle)->created, now_);
  EXPECT_EQ(store_.List(Kind::kTensor, std::nullopt).size(), 2u);
  EXPECT_EQ(budget_.reserved_bytes(), 2 * (10 + kEntry));
  now_ += seconds(60);  // a's time is over
  EXPECT_EQ(reason(store_.Get(Kind::kTensor, "a", handle)), Reason::kNotFound);
  EXPECT_TRUE(store_.Get(Kind::kTensor, "b", handle).ok());
}

TEST_F(ContentStoreTest, OwnersHaveQuotas) {
  store_.SetOwnerLimit(kEntry + 20);
  Put(MakeTensor({10}, 1));
  const auto refused = store_.Put(Kind::kTensor, "", MakeTensor({10}, 2), {}, &created_);
  ASSERT_FALSE(refused.ok());
  const ErrorDetails details = GetErrorDetails(refused.status());
  EXPECT_EQ(details.reason, Reason::kQuota);
  EXPECT_EQ(details.metadata.at("stored_bytes"), std::to_string(kEntry + 10));
  EXPECT_EQ(details.metadata.at("quota"), "stored_bytes");
  EXPECT_EQ(store_.QuotaOf("").limit, kEntry + 20);
  EXPECT_EQ(store_.QuotaOf("").used, kEntry + 10);
  EXPECT_EQ(store_.QuotaOf("b").used, 0);
  EXPECT_EQ(budget_.reserved_bytes(), kEntry + 10);
  Put(MakeTensor({10}, 1));  // the same again takes nothing
  EXPECT_FALSE(created_);
  EXPECT_FALSE(store_.CheckQuota("", kEntry).ok());
  EXPECT_TRUE(store_.CheckQuota("b", kEntry + 20).ok());
  EXPECT_FALSE(store_.CheckQuota("b", kEntry + 21).ok());
  now_ += seconds(101);  // expired content no longer counts
  EXPECT_TRUE(store_.CheckQuota("", kEntry).ok());
  Put(MakeTensor({10}, 2));
  store_.Evict(1);
  EXPECT_TRUE(store_.CheckQuota("", kEntry + 20).ok());
  store_.SetOwnerLimit(0);
  EXPECT_TRUE(store_.CheckQuota("", int64_t{1} << 60).ok());
}

TEST_F(ContentStoreTest, TheDefaultTimeToLiveMayChange) {
  const std::string before = Put(MakeTensor({4}, 1))->handle;
  store_.SetDefaultTtl(seconds(10));
  const std::string after = Put(MakeTensor({4}, 2))->handle;
  now_ += seconds(11);
  EXPECT_EQ(GetReason(after), Reason::kNotFound);
  EXPECT_TRUE(store_.Get(Kind::kDataset, "", before).ok());
}

}  // namespace
}  // namespace tenon::server
