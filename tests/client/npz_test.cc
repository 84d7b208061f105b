// Archives of arrays; tests/python/test_command.py has those that NumPy makes.

#include "client/cpp/tool/npz.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "backends/core/npy.h"
#include "tests/support/status_matchers.h"

namespace tenon::tool {
namespace {

using ::tenon::testing::Fails;

class NpzTest : public ::testing::Test {
 protected:
  NpzTest() : path_(::testing::TempDir() + "/npz_test_" + std::to_string(getpid()) + ".npz") {
    for (int i = 0; i < 3; ++i) a_.buffer.as<double>()[i] = i + 0.5;
  }
  ~NpzTest() override { std::filesystem::remove(path_); }

  std::string Text() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void Write(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }

  const std::string path_;
  Tensor a_ = *Tensor::Allocate({DType::kFloat64, {3}});
  Tensor empty_ = *Tensor::Allocate({DType::kInt32, {0, 2}});
};

TEST_F(NpzTest, WhatIsWrittenIsReadBack) {
  for (const uint64_t zip64_from : {uint64_t{0}, uint64_t{100}, uint64_t{0xffffffff}}) {
    ASSERT_TRUE(WriteNpzFile(path_, {{"a", &a_}, {"b/c", &empty_}}, zip64_from).ok());
    const auto file = NpzFile::Open(path_);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->names(), (std::vector<std::string>{"a", "b/c"}));
    const auto a = file->Read("a");
    ASSERT_TRUE(a.ok()) << a.status();
    EXPECT_EQ(a->spec, a_.spec);
    EXPECT_EQ(a->buffer.as<double>()[2], 2.5);
    EXPECT_EQ(file->Read("b/c")->spec, empty_.spec);
    EXPECT_TRUE(Fails(file->Read("d"), Reason::kNotFound));
  }
}

TEST_F(NpzTest, AnArchiveOfNothing) {
  ASSERT_TRUE(WriteNpzFile(path_, {}).ok());
  EXPECT_TRUE(NpzFile::Open(path_)->names().empty());
  EXPECT_TRUE(Fails(ArraysIn(path_), Reason::kBadParameter));
  EXPECT_TRUE(Fails(LoadArrayFile(path_), Reason::kBadParameter));
}

TEST_F(NpzTest, ArraysByTheirPath) {
  ASSERT_TRUE(WriteArrayFile(path_, "only", a_).ok());
  EXPECT_EQ(LoadArrayFile(path_)->spec, a_.spec);
  EXPECT_EQ(LoadArrayFile(path_ + ":only")->spec, a_.spec);
  EXPECT_EQ(*ArraysIn(path_), std::vector<std::string>{path_ + ":only"});
  EXPECT_EQ(*ArraysIn(path_ + ":only"), std::vector<std::string>{path_ + ":only"});
  ASSERT_TRUE(WriteNpzFile(path_, {{"a", &a_}, {"b", &a_}}).ok());
  EXPECT_TRUE(Fails(LoadArrayFile(path_), Reason::kBadParameter));
  EXPECT_TRUE(Fails(ArraysIn("/nowhere/x.npz"), Reason::kNotFound));
  EXPECT_TRUE(Fails(ArraysIn("/nowhere/x.npz:a"), Reason::kNotFound));
}

// Reads all there is; whatever the bytes are, there is an array or an error.
bool ReadsWell(const std::string& path) {
  const auto file = NpzFile::Open(path);
  if (!file.ok()) return false;
  for (const std::string& name : file->names()) {
    if (!file->Read(name).ok()) return false;
  }
  return file->names().size() == 2;
}

TEST_F(NpzTest, DamageIsFound) {
  for (const uint64_t zip64_from : {uint64_t{0}, uint64_t{0xffffffff}}) {
    ASSERT_TRUE(WriteNpzFile(path_, {{"a", &a_}, {"b", &a_}}, zip64_from).ok());
    const std::string whole = Text();
    for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
      Write(whole.substr(0, bytes));
      EXPECT_FALSE(ReadsWell(path_)) << bytes;
    }
    for (size_t at = 0; at < whole.size(); ++at) {  // must not crash, nor take memory without end
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ 0xff);
      Write(damaged);
      (void)ReadsWell(path_);
    }
    std::string data = whole;
    data[whole.find("\x93NUMPY") + 128] ^= 1;  // of an element: the checksum tells
    Write(data);
    EXPECT_TRUE(Fails(NpzFile::Open(path_)->Read("a"), Reason::kBadParameter));
  }
}

TEST_F(NpzTest, TwoOfOneNameAreAmbiguous) {
  ASSERT_TRUE(WriteNpzFile(path_, {{"a", &a_}, {"a", &a_}}).ok());
  EXPECT_TRUE(Fails(NpzFile::Open(path_), Reason::kBadParameter));
}

}  // namespace
}  // namespace tenon::tool
