#include "backends/core/npy.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <complex>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "backends/core/error.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace tenon {
namespace {

using testing::Fails;
using namespace std::string_literals;

// A .npy file of version 1.0 with this header text and data.
std::string File(const std::string& header, const std::string& data) {
  std::string file = "\x93NUMPY\x01\x00"s;
  file += static_cast<char>(header.size() & 0xFF);
  file += static_cast<char>(header.size() >> 8);
  return file + header + data;
}

std::string Header(const std::string& descr, const std::string& order, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
}

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

template <typename T>
std::vector<T> Values(const Tensor& tensor) {
  const T* data = tensor.buffer.as<T>();
  return std::vector<T>(data, data + tensor.buffer.size_bytes() / sizeof(T));
}

TEST(NpyTest, ReadsWhatNumPyWrote) {
  // numpy.save of numpy.array([[1, 2, 3], [4, 5, 6]], dtype=numpy.int16), byte for byte.
  const std::string header =
      "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }" + std::string(58, ' ') + "\n";
  ASSERT_EQ(header.size(), 118u);
  const auto tensor = ParseNpy(File(header, Bytes<int16_t>({1, 2, 3, 4, 5, 6})));
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(tensor->spec, (TensorSpec{DType::kInt16, {2, 3}}));
  EXPECT_EQ(Values<int16_t>(*tensor), (std::vector<int16_t>{1, 2, 3, 4, 5, 6}));
}

TEST(NpyTest, EveryElementTypeRoundTrips) {
  for (int number = 1; number <= 13; ++number) {
    const auto dtype = static_cast<DType>(number);
    Tensor tensor = *Tensor::Allocate({dtype, {3, 1, 2}});
    for (int64_t i = 0; i < tensor.buffer.size_bytes(); ++i) {
      tensor.buffer.as<uint8_t>()[i] = dtype == DType::kBool ? i % 2 : 17 * i + 3;
    }
    const std::string file = FormatNpy(tensor);
    EXPECT_EQ((file.size() - tensor.buffer.size_bytes()) % 64, 0u);
    const auto back = ParseNpy(file);
    ASSERT_TRUE(back.ok()) << DTypeName(dtype) << back.status();
    EXPECT_EQ(back->spec, tensor.spec);
    EXPECT_EQ(Values<uint8_t>(*back), Values<uint8_t>(tensor));
  }
}

TEST(NpyTest, ShapesRoundTrip) {
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
           {}, {1}, {5}, {0}, {2, 3}, {4, 0, INT64_MAX}, std::vector<int64_t>(1024, 1)}) {
    Tensor tensor = *Tensor::Allocate({DType::kUint8, shape});
    std::memset(tensor.buffer.data(), 5, tensor.buffer.size_bytes());
    const auto back = ParseNpy(FormatNpy(tensor));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->spec.shape, shape);
    EXPECT_EQ(back->buffer.size_bytes(), tensor.buffer.size_bytes());
  }
}

TEST(NpyTest, HeadersTooLongForVersionOne) {
  const Tensor tensor = *Tensor::Allocate({DType::kUint8, std::vector<int64_t>(30000, 1)});
  const std::string file = FormatNpy(tensor);
  EXPECT_EQ(file.substr(6, 2), "\x02\x00"s);
  uint32_t length = 0;
  std::memcpy(&length, file.data() + 8, 4);
  EXPECT_EQ(12 + length + 1, file.size());
  EXPECT_TRUE(Fails(ParseNpy(file), Reason::kBadParameter, "shape"));  // far too many axes
}

TEST(NpyTest, VersionsTwoAndThreeHaveALongLength) {
  for (const char version : {'\x02', '\x03'}) {
    const std::string header = Header("<f4", "False", "(1,)");
    const std::string file = "\x93NUMPY"s + version + "\0"s + static_cast<char>(header.size()) +
                             "\0\0\0"s + header + Bytes<float>({2.5f});
    const auto tensor = ParseNpy(file);
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_EQ(Values<float>(*tensor), std::vector<float>{2.5f});
  }
}

TEST(NpyTest, HeadersAreReadTolerantly) {
  for (const char* header :
       {"{\"shape\":(2,),\"fortran_order\":False,\"descr\":\"<u2\"}",
        "  { 'shape' : ( 2 , ) , 'descr' : '=u2' , 'fortran_order' : True }  \n",
        "{'descr': 'u2', 'fortran_order': False, 'shape': (2L,)}"}) {
    const auto tensor = ParseNpy(File(header, Bytes<uint16_t>({7, 9})));
    ASSERT_TRUE(tensor.ok()) << header << tensor.status();
    EXPECT_EQ(tensor->spec, (TensorSpec{DType::kUint16, {2}}));
    EXPECT_EQ(Values<uint16_t>(*tensor), (std::vector<uint16_t>{7, 9}));
  }
}

TEST(NpyTest, OneByteTypesHaveNoByteOrder) {
  for (const char* descr : {"|u1", "<u1", ">u1", "u1"}) {
    EXPECT_TRUE(ParseNpy(File(Header(descr, "False", "()"), "x")).ok()) << descr;
  }
  const auto bools = ParseNpy(File(Header("|b1", "False", "(3,)"), "\x00\x01\xFF"s));
  ASSERT_TRUE(bools.ok());
  EXPECT_EQ(Values<uint8_t>(*bools), (std::vector<uint8_t>{0, 1, 1}));
}

// Element (i, j, ...) of the expected array is its own C-order number; the file holds the same
// array with the first axis fastest.
template <typename T>
void ExpectFortranReads(const std::string& descr, const std::vector<int64_t>& shape) {
  int64_t count = 1;
  std::string text = "(";
  for (const int64_t extent : shape) {
    count *= extent;
    text += std::to_string(extent) + ",";
  }
  std::vector<T> fortran(count), expected(count);
  for (int64_t n = 0; n < count; ++n) {
    expected[n] = static_cast<T>(n);
    int64_t rest = n, offset = 0;
    std::vector<int64_t> index(shape.size());
    for (size_t axis = shape.size(); axis-- > 0; rest /= shape[axis]) {
      index[axis] = rest % shape[axis];
    }
    for (size_t axis = shape.size(); axis-- > 0;) offset = offset * shape[axis] + index[axis];
    fortran[offset] = static_cast<T>(n);
  }
  const auto tensor = ParseNpy(File(Header(descr, "True", text + ")"), Bytes(fortran)));
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(tensor->spec.shape, shape);
  EXPECT_EQ(Values<T>(*tensor), expected);
}

TEST(NpyTest, FortranOrderBecomesCOrder) {
  ExpectFortranReads<double>("<f8", {});
  ExpectFortranReads<double>("<f8", {7});
  ExpectFortranReads<double>("<f8", {2, 3});
  ExpectFortranReads<float>("<f4", {70, 33});
  ExpectFortranReads<uint8_t>("|u1", {5, 2, 3});
  ExpectFortranReads<int16_t>("<i2", {3, 1, 4, 2, 5});
  ExpectFortranReads<std::complex<double>>("<c16", {33, 2, 65});
  ExpectFortranReads<double>("<f8", {3, 0, 2});
}

TEST(NpyTest, UnsupportedElementTypes) {
  for (const char* descr : {"<f2", "<f16", "<c32", "|O", "<U5", "|S3", "<M8[ns]", "|V8", "<i3",
                            "<f80", "<", "<<f8", "f8x"}) {
    EXPECT_TRUE(Fails(ParseNpy(File(Header(descr, "False", "(0,)"), "")), Reason::kUnsupportedDtype,
                      "descr"))
        << descr;
  }
  const std::string structured =
      "{'descr': [('a', '<f4'), ('b', '<i4')], 'fortran_order': False, 'shape': (0,), }";
  EXPECT_TRUE(Fails(ParseNpy(File(structured, "")), Reason::kUnsupportedDtype, "descr"));
}

TEST(NpyTest, MalformedHeaders) {
  const auto expect = [](const std::string& header, const char* field) {
    EXPECT_TRUE(Fails(ParseNpy(File(header, "12345678")), Reason::kBadParameter, field)) << header;
  };
  expect("", "header");
  expect("[]", "header");
  expect("{", "header");
  expect("{}", "descr");
  expect("{'descr': '<f8'}", "fortran_order");
  expect("{'descr': '<f8', 'fortran_order': False}", "shape");
  expect("{'descr': '<f8' 'fortran_order': False, 'shape': ()}", "header");
  expect("{'descr': '<f8', 'descr': '<f8', 'fortran_order': False, 'shape': ()}", "header");
  expect("{'extra': '<f8', 'descr': '<f8', 'fortran_order': False, 'shape': ()}", "header");
  expect(Header("<f8", "False", "()") + "x", "header");
  expect("{'descr", "header");
  expect("{'descr': 8, 'fortran_order': False, 'shape': ()}", "descr");
  expect(Header("", "False", "()"), "descr");
  expect(Header(">f8", "False", "()"), "descr");
  expect(Header("<f8", "false", "()"), "fortran_order");
  expect(Header("<f8", "1", "()"), "fortran_order");
  for (const char* shape : {"1", "[1]", "(1)", "(-1,)", "(1.0,)", "(1,,)", "(,)", "(1", "(1 2)",
                            "(None,)", "(9223372036854775808,)", "(+1,)"}) {
    expect(Header("<f8", "False", shape), "shape");
  }
}

TEST(NpyTest, ShapesThatOverflow) {
  for (const char* shape : {"(9223372036854775807,)", "(4294967296, 4294967296)",
                            "(3037000500, 3037000500, 2)", "(1152921504606846976,)"}) {
    EXPECT_TRUE(
        Fails(ParseNpy(File(Header("<f8", "False", shape), "")), Reason::kBadParameter, "shape"))
        << shape;
  }
  // This one fits in 63 bits; it is refused for want of data before memory is taken for it.
  EXPECT_TRUE(Fails(ParseNpy(File(Header("<f8", "False", "(1152921504606846975,)"), "x")),
                    Reason::kBadParameter, "data"));
}

TEST(NpyTest, WrongNumberOfBytes) {
  const std::string header = Header("<f8", "False", "(2,)");
  for (const size_t size : {size_t{0}, size_t{15}, size_t{17}, size_t{32}}) {
    const auto tensor = ParseNpy(File(header, std::string(size, 'x')));
    EXPECT_TRUE(Fails(tensor, Reason::kBadParameter, "data"));
    EXPECT_EQ(GetErrorDetails(tensor.status()).metadata.at("expected_bytes"), "16");
    EXPECT_EQ(GetErrorDetails(tensor.status()).metadata.at("bytes"), std::to_string(size));
  }
}

TEST(NpyTest, EveryTruncationIsAnError) {
  const std::string file = File(Header("<f8", "True", "(2, 2)"), std::string(32, 'x'));
  ASSERT_TRUE(ParseNpy(file).ok());
  for (size_t size = 0; size < file.size(); ++size) {
    // A copy of exactly this size, so that a sanitizer sees a read beyond it.
    const std::vector<char> cut(file.begin(), file.begin() + size);
    const auto tensor = ParseNpy({cut.data(), cut.size()});
    ASSERT_FALSE(tensor.ok());
    EXPECT_EQ(GetErrorDetails(tensor.status()).reason, Reason::kBadParameter);
  }
}

TEST(NpyTest, EveryChangedByteIsReadOrRefused) {
  const std::string file = File(Header("<f4", "True", "(2, 3, 1)"), std::string(24, 'x'));
  for (size_t position = 0; position < file.size(); ++position) {
    for (int value = 0; value < 256; ++value) {
      std::string changed = file;
      changed[position] = static_cast<char>(value);
      const auto tensor = ParseNpy(changed);
      if (tensor.ok()) {
        EXPECT_EQ(tensor->buffer.size_bytes(), *CheckedByteCount(tensor->spec));
      } else {
        const Reason reason = GetErrorDetails(tensor.status()).reason;
        EXPECT_TRUE(reason == Reason::kBadParameter || reason == Reason::kUnsupportedDtype);
      }
    }
  }
}

TEST(NpyTest, MagicAndVersion) {
  const std::string good = File(Header("|u1", "False", "()"), "x");
  EXPECT_TRUE(Fails(ParseNpy("NUMPY"), Reason::kBadParameter, "magic"));
  EXPECT_TRUE(Fails(ParseNpy(good.substr(1)), Reason::kBadParameter, "magic"));
  for (const auto& [position, value] :
       {std::pair(6, '\0'), std::pair(6, '\4'), std::pair(7, '\1')}) {
    std::string bad = good;
    bad[position] = value;
    EXPECT_TRUE(Fails(ParseNpy(bad), Reason::kBadParameter, "version"));
  }
}

class NpyFileTest : public ::testing::Test {
 protected:
  NpyFileTest() : folder_(::testing::TempDir() + "npy_test." + std::to_string(getpid())) {
    std::filesystem::create_directory(folder_);
  }
  ~NpyFileTest() override { std::filesystem::remove_all(folder_); }

  const std::string folder_;
};

TEST_F(NpyFileTest, WritesReplaceTheOldFileAndLeaveNothingElse) {
  const std::string path = folder_ + "/a.npy";
  for (const int64_t rows : {3, 1}) {
    Tensor tensor = *Tensor::Allocate({DType::kInt64, {rows, 2}});
    for (int64_t i = 0; i < 2 * rows; ++i) tensor.buffer.as<int64_t>()[i] = i - 2;
    ASSERT_TRUE(WriteNpyFile(path, tensor).ok());
    EXPECT_EQ(testing::ReadFileOrDie(path), FormatNpy(tensor));
    const auto back = ReadNpyFile(path);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->spec, tensor.spec);
    EXPECT_EQ(Values<int64_t>(*back), Values<int64_t>(tensor));
  }
  const auto files = std::filesystem::directory_iterator(folder_);
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

TEST_F(NpyFileTest, ErrorsNameThePath) {
  const Tensor tensor = *Tensor::Allocate({DType::kUint8, {0}});
  EXPECT_TRUE(Fails(ReadNpyFile(folder_ + "/none.npy"), Reason::kNotFound, "path"));
  EXPECT_TRUE(Fails(ReadNpyFile(folder_), Reason::kBadParameter, "path"));
  EXPECT_TRUE(Fails(WriteNpyFile(folder_ + "/none/a.npy", tensor), Reason::kNotFound, "path"));
  std::filesystem::create_directory(folder_ + "/folder");
  EXPECT_TRUE(Fails(WriteNpyFile(folder_ + "/folder", tensor), Reason::kInternal, "path"));
  std::ofstream(folder_ + "/bad.npy") << "text";
  const auto bad = ReadNpyFile(folder_ + "/bad.npy");
  EXPECT_TRUE(Fails(bad, Reason::kBadParameter, "magic"));
  EXPECT_NE(bad.status().message().find(folder_ + "/bad.npy"), absl::string_view::npos);
  const auto files = std::filesystem::directory_iterator(folder_);
  EXPECT_EQ(std::distance(begin(files), end(files)), 2);  // no temporary file is left
}

TEST_F(NpyFileTest, TheGoldenInputsRead) {
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(testing::TestPath("golden/inputs"))) {
    if (entry.path().extension() != ".npy") continue;
    const auto tensor = ReadNpyFile(entry.path());
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_GE(tensor->spec.shape.size(), 1u);
    ++files;
  }
  EXPECT_GT(files, 30);
}

}  // namespace
}  // namespace tenon
