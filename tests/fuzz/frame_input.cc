#include "tests/fuzz/frame_input.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

namespace tenon::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Random = std::minstd_rand;

constexpr size_t kLongestFrame = std::numeric_limits<uint16_t>::max();

size_t Below(size_t limit, Random* random) { return (*random)() % limit; }

template <typename Integer>
Integer MutateInteger(Integer value, Random* random) {
  constexpr int64_t kUsual[] = {0, 1, 2, 3, 4, 7, 8, 16, 64, 100, 4096, 65535, 65536};
  const auto step = static_cast<Integer>(Below(9, random));
  switch (Below(6, random)) {
    case 0:
      return std::numeric_limits<Integer>::max() - step;
    case 1:
      return std::numeric_limits<Integer>::min() + step;
    case 2:
      return value == std::numeric_limits<Integer>::max() ? value : value + 1;
    case 3:
      return value == std::numeric_limits<Integer>::min() ? value : value - 1;
    default:
      return static_cast<Integer>(kUsual[Below(std::size(kUsual), random)]);
  }
}

double MutateDouble(double value, Random* random) {
  const double usual[] = {0,
                          -1,
                          1,
                          0.5,
                          1e-300,
                          1e308,
                          -value,
                          std::numeric_limits<double>::infinity(),
                          std::numeric_limits<double>::quiet_NaN()};
  return usual[Below(std::size(usual), random)];
}

// `is_text`: it stays UTF-8 most of the time.
std::string MutateBytes(std::string bytes, bool is_text, Random* random) {
  const size_t at = Below(bytes.size() + 1, random);
  switch (Below(6, random)) {
    case 0:
      return "";
    case 1:
      return bytes.substr(0, at);
    case 2:
      return bytes.insert(at, 1 + Below(16, random), is_text ? 'a' : '\0');
    case 3:
      return bytes.size() > 4096 ? bytes : bytes + bytes;
    case 4:
      return bytes.insert(at, is_text ? "\xC3\xA9" : "\x7F\xF0");  // é; a part of an infinity
    default:
      if (at == bytes.size()) return bytes + (is_text ? "b" : "\xFF");
      bytes[at] = static_cast<char>(is_text ? 'a' + Below(26, random) : Below(256, random));
      return bytes;
  }
}

// One value of a field that is no message; `index` < 0: the field is not repeated.
class ValueMutator {
 public:
  ValueMutator(Message* message, const FieldDescriptor* field, int index, Random* random)
      : message_(message), field_(field), index_(index), random_(random) {}

  void Mutate() {
    const Reflection& reflection = *message_->GetReflection();
    switch (field_->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return Change<int32_t>(&Reflection::GetInt32, &Reflection::GetRepeatedInt32,
                               &Reflection::SetInt32, &Reflection::SetRepeatedInt32);
      case FieldDescriptor::CPPTYPE_INT64:
        return Change<int64_t>(&Reflection::GetInt64, &Reflection::GetRepeatedInt64,
                               &Reflection::SetInt64, &Reflection::SetRepeatedInt64);
      case FieldDescriptor::CPPTYPE_UINT32:
        return Change<uint32_t>(&Reflection::GetUInt32, &Reflection::GetRepeatedUInt32,
                                &Reflection::SetUInt32, &Reflection::SetRepeatedUInt32);
      case FieldDescriptor::CPPTYPE_UINT64:
        return Change<uint64_t>(&Reflection::GetUInt64, &Reflection::GetRepeatedUInt64,
                                &Reflection::SetUInt64, &Reflection::SetRepeatedUInt64);
      case FieldDescriptor::CPPTYPE_BOOL:
        return Set(&Reflection::SetBool, &Reflection::SetRepeatedBool, Below(2, random_) == 1);
      case FieldDescriptor::CPPTYPE_ENUM:
        return Set(&Reflection::SetEnumValue, &Reflection::SetRepeatedEnumValue,
                   static_cast<int>(Below(field_->enum_type()->value_count() + 2, random_)));
      case FieldDescriptor::CPPTYPE_DOUBLE: {
        const double old = index_ < 0 ? reflection.GetDouble(*message_, field_)
                                      : reflection.GetRepeatedDouble(*message_, field_, index_);
        return Set(&Reflection::SetDouble, &Reflection::SetRepeatedDouble,
                   MutateDouble(old, random_));
      }
      case FieldDescriptor::CPPTYPE_STRING: {
        std::string old = index_ < 0 ? reflection.GetString(*message_, field_)
                                     : reflection.GetRepeatedString(*message_, field_, index_);
        const bool is_text = field_->type() == FieldDescriptor::TYPE_STRING;
        return Set(&Reflection::SetString, &Reflection::SetRepeatedString,
                   MutateBytes(std::move(old), is_text, random_));
      }
      default:  // there are no floats in the contract
        return;
    }
  }

 private:
  template <typename SetOne, typename SetInList, typename Value>
  void Set(SetOne set_one, SetInList set_in_list, Value value) {
    const Reflection& reflection = *message_->GetReflection();
    if (index_ < 0) {
      (reflection.*set_one)(message_, field_, std::move(value));
    } else {
      (reflection.*set_in_list)(message_, field_, index_, std::move(value));
    }
  }
  template <typename Integer, typename Get, typename GetInList, typename SetOne, typename SetInList>
  void Change(Get get, GetInList get_in_list, SetOne set_one, SetInList set_in_list) {
    const Reflection& reflection = *message_->GetReflection();
    const Integer old = index_ < 0 ? (reflection.*get)(*message_, field_)
                                   : (reflection.*get_in_list)(*message_, field_, index_);
    Set(set_one, set_in_list, MutateInteger<Integer>(old, random_));
  }

  Message* const message_;
  const FieldDescriptor* const field_;
  const int index_;
  Random* const random_;
};

void AddElement(Message* message, const FieldDescriptor* field) {
  const Reflection& reflection = *message->GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      reflection.AddMessage(message, field);
      return;
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection.AddString(message, field, "a");
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.AddInt32(message, field, 1);
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection.AddInt64(message, field, 1);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection.AddDouble(message, field, 1);
    default:
      return;
  }
}

void MutateRepeated(Message* message, const FieldDescriptor* field, Random* random) {
  const Reflection& reflection = *message->GetReflection();
  const int size = reflection.FieldSize(*message, field);
  const size_t kind = Below(8, random);
  if (size == 0 || kind == 0) return AddElement(message, field);
  if (kind == 1) return reflection.RemoveLast(message, field);
  const int index = static_cast<int>(Below(static_cast<size_t>(size), random));
  if (kind == 2) return reflection.SwapElements(message, field, index, size - 1);
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    return MutateMessage(reflection.MutableRepeatedMessage(message, field, index), random);
  }
  ValueMutator(message, field, index, random).Mutate();
}

void MutateParsed(const Message& prototype, std::string* frame, Random* random) {
  const std::unique_ptr<Message> message(prototype.New());
  if (!message->ParsePartialFromString(*frame)) return;
  MutateMessage(message.get(), random);
  std::string changed;
  if (message->SerializePartialToString(&changed) && changed.size() <= kLongestFrame) {
    *frame = std::move(changed);
  }
}

}  // namespace

std::vector<std::string> SplitFrames(std::string_view input) {
  std::vector<std::string> frames;
  while (input.size() >= 2 && frames.size() < kMostFrames) {
    const size_t length = static_cast<unsigned char>(input[0]) |
                          static_cast<size_t>(static_cast<unsigned char>(input[1])) << 8;
    input.remove_prefix(2);
    frames.emplace_back(input.substr(0, length));
    input.remove_prefix(std::min(length, input.size()));
  }
  return frames;
}

std::string JoinFrames(const std::vector<std::string>& frames) {
  std::string input;
  for (const std::string& frame : frames) {
    const size_t length = std::min(frame.size(), kLongestFrame);
    input += static_cast<char>(length & 0xFF);
    input += static_cast<char>(length >> 8);
    input.append(frame, 0, length);
  }
  return input;
}

void MutateMessage(Message* message, Random* random) {
  const google::protobuf::Descriptor& type = *message->GetDescriptor();
  const Reflection& reflection = *message->GetReflection();
  if (type.field_count() == 0) return;
  // What is set is the more interesting: most fields of a random message would make it another one.
  std::vector<const FieldDescriptor*> set;
  reflection.ListFields(*message, &set);
  const bool keep_to_set = !set.empty() && Below(4, random) > 0;
  const FieldDescriptor* field =
      keep_to_set ? set[Below(set.size(), random)]
                  : type.field(static_cast<int>(Below(type.field_count(), random)));
  if (Below(24, random) == 0) return reflection.ClearField(message, field);
  if (field->is_map()) return reflection.ClearField(message, field);
  if (field->is_repeated()) return MutateRepeated(message, field, random);
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    return MutateMessage(reflection.MutableMessage(message, field), random);
  }
  ValueMutator(message, field, -1, random).Mutate();
}

void MutateFrames(const Message& prototype, std::vector<std::string>* frames, Random* random) {
  if (frames->empty()) {
    frames->emplace_back();
    return;
  }
  const size_t at = Below(frames->size(), random);
  std::string& frame = (*frames)[at];
  switch (Below(12, random)) {
    case 0:
      if (frames->size() < kMostFrames) frames->insert(frames->begin() + at, std::string(frame));
      return;
    case 1:
      frames->erase(frames->begin() + at);
      return;
    case 2:
      return std::swap(frame, (*frames)[Below(frames->size(), random)]);
    case 3:
      frames->resize(at);
      return;
    case 4:
      frame = MutateBytes(std::move(frame), false, random);
      frame.resize(std::min(frame.size(), kLongestFrame));
      return;
    default:
      return MutateParsed(prototype, &frame, random);
  }
}

}  // namespace tenon::fuzz
