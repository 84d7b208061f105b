#include "tenon/measure_spec.h"

#include <charconv>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "backends/core/error.h"
#include "backends/core/utf8.h"

namespace tenon::client {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

struct Alias {
  const char* alias;
  const char* id;
};

// The short names of measures; where there is none the id is short itself.
constexpr Alias kAliases[] = {
    {"tnc", "trustworthiness_continuity"},
    {"mrre", "mean_relative_rank_error"},
    {"lcmc", "local_continuity_meta_criteria"},
    {"nh", "neighborhood_hit"},
    {"nd", "neighbor_dissimilarity"},
    {"ca_tnc", "class_aware_trustworthiness_continuity"},
    {"proc", "procrustes"},
    {"snc", "steadiness_cohesiveness"},
    {"dsc", "distance_consistency"},
    {"ivm", "internal_validation_measure"},
    {"c_evm", "clustering_and_external_validation_measure"},
    {"l_tnc", "label_trustworthiness_and_continuity"},
    {"cadi", "class_angular_distortion_index"},
    {"sn_stress", "scale_normalized_stress"},
    {"nm_stress", "non_metric_stress"},
    {"kl_div", "kl_divergence"},
    {"dtm", "distance_to_measure"},
    {"topo", "topographic_product"},
    {"pr", "pearson_r"},
    {"srho", "spearman_rho"},
    {"gi", "gap_index"},
};

Error BadParameter(std::string_view name, std::string_view what) {
  return Error(Reason::kBadParameter, StrCat("parameter '", name, "' ", what))
      .Field(std::string(name));
}

// The field of MeasureSpec that holds the parameters of a measure; null when it is unknown.
const FieldDescriptor* FindParameters(const std::string& id) {
  std::string full = id;
  for (const Alias& alias : kAliases) {
    if (id == alias.alias) full = alias.id;
  }
  const FieldDescriptor* field = v1::MeasureSpec::descriptor()->FindFieldByName(full);
  return field != nullptr && field->containing_oneof() != nullptr ? field : nullptr;
}

// Names that stand for others, as people and the reference write them.
std::string LongName(std::string_view name) {
  if (name == "seed") return "random.seed";
  if (name == "rng") return "random.generator";
  constexpr std::string_view kOrder = "minkowski.p";  // also dbscan.minkowski.p
  if (name.size() >= kOrder.size() && name.substr(name.size() - kOrder.size()) == kOrder) {
    return StrCat(name.substr(0, name.size() - kOrder.size()), "minkowski_p");
  }
  return std::string(name);
}

// "CLUSTERING_STRATEGY_" of CLUSTERING_STRATEGY_UNSPECIFIED.
std::string Prefix(const EnumDescriptor* type) {
  const std::string& zero = type->FindValueByNumber(0)->name();
  return zero.substr(0, zero.size() - std::string_view("UNSPECIFIED").size());
}

const EnumValueDescriptor* FindValue(const EnumDescriptor* type, const std::string& text) {
  std::string name = absl::AsciiStrToUpper(text == "k-means++" ? "plus_plus" : text);
  for (char& c : name) {
    if (c == '-') c = '_';
  }
  const EnumValueDescriptor* value = type->FindValueByName(StrCat(Prefix(type), name));
  return value != nullptr && value->number() != 0 ? value : nullptr;
}

std::string Choices(const EnumDescriptor* type) {
  std::string choices;
  for (int i = 0; i < type->value_count(); ++i) {
    if (type->value(i)->number() == 0) continue;
    const std::string name = type->value(i)->name().substr(Prefix(type).size());
    choices += StrCat(choices.empty() ? "" : ", ", absl::AsciiStrToLower(name));
  }
  return choices;
}

// A whole number of any sign in `text`, within the range of T.
template <typename T>
std::optional<T> ParseInteger(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

absl::Status SetInteger(const FieldDescriptor* field, std::string_view name,
                        const std::string& text, Message* message) {
  const Reflection* reflection = message->GetReflection();
  bool done = false;
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT32) {
    if (const auto value = ParseInteger<int32_t>(text)) {
      reflection->SetInt32(message, field, *value);
      done = true;
    }
  } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
    if (const auto value = ParseInteger<int64_t>(text)) {
      reflection->SetInt64(message, field, *value);
      done = true;
    }
  } else if (const auto value = ParseInteger<uint64_t>(text)) {
    reflection->SetUInt64(message, field, *value);
    done = true;
  }
  if (done) return absl::OkStatus();
  return BadParameter(name, StrCat("is '", text, "', which is not a whole number of its range"));
}

absl::Status SetScalar(const FieldDescriptor* field, std::string_view name, const std::string& text,
                       Message* message) {
  const Reflection* reflection = message->GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      double value = 0;
      if (!absl::SimpleAtod(text, &value)) {
        return BadParameter(name, StrCat("is '", text, "', which is not a number"));
      }
      reflection->SetDouble(message, field, value);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_BOOL: {
      if (text != "true" && text != "false") {
        return BadParameter(name, StrCat("is '", text, "', which is neither true nor false"));
      }
      reflection->SetBool(message, field, text == "true");
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      const EnumValueDescriptor* value = FindValue(field->enum_type(), text);
      if (value == nullptr) {
        return BadParameter(name,
                            StrCat("is '", text, "'; it may be ", Choices(field->enum_type())));
      }
      reflection->SetEnum(message, field, value);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_STRING:
      reflection->SetString(message, field, text);
      return absl::OkStatus();
    default:
      return SetInteger(field, name, text, message);
  }
}

std::string FieldNames(const Descriptor* type) {
  std::string names;
  for (int i = 0; i < type->field_count(); ++i) {
    names += StrCat(names.empty() ? "" : ", ", type->field(i)->name());
  }
  return names.empty() ? "it has none" : StrCat("it has ", names);
}

absl::Status SetParameter(std::string_view name, const std::string& text, Message* message) {
  const std::string long_name = LongName(name);
  const std::vector<std::string> path = absl::StrSplit(long_name, '.');
  for (size_t i = 0;; ++i) {
    const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(path[i]);
    if (field == nullptr) {
      return BadParameter(
          name, StrCat("is no parameter of this measure; ", FieldNames(message->GetDescriptor())));
    }
    const bool last = i + 1 == path.size();
    const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (last && is_message) {
      return BadParameter(name, StrCat("has parts; name one, such as ", long_name, ".",
                                       field->message_type()->field(0)->name()));
    }
    if (!last && !is_message) return BadParameter(name, "has no parts");
    if (last) return SetScalar(field, name, text, message);
    message = message->GetReflection()->MutableMessage(message, field);
  }
}

// "7-means" asks for k-means with seven clusters.
absl::Status SetPair(std::string_view name, std::string text, Message* message) {
  constexpr std::string_view kMeans = "-means";
  if (name == "clustering_strategy" && text.size() > kMeans.size() && text[0] != 'k' &&
      text.compare(text.size() - kMeans.size(), kMeans.size(), kMeans) == 0) {
    TENON_RETURN_IF_ERROR(
        SetParameter("cluster_count", text.substr(0, text.size() - kMeans.size()), message));
    text = "kmeans";
  }
  return SetParameter(name, text, message);
}

absl::Status SetParameters(std::string_view parameters, Message* message) {
  std::vector<std::string> seen;
  for (const absl::string_view part : absl::StrSplit(ToAbsl(parameters), ',')) {
    const std::vector<std::string> pair = absl::StrSplit(part, absl::MaxSplits('=', 1));
    const std::string name(absl::StripAsciiWhitespace(pair[0]));
    if (pair.size() != 2 || name.empty()) {
      return BadParameter(ToStd(part), "is not of the form name=value");
    }
    for (const std::string& other : seen) {
      if (LongName(other) == LongName(name)) return BadParameter(name, "is given twice");
    }
    seen.push_back(name);
    TENON_RETURN_IF_ERROR(SetPair(name, std::string(absl::StripAsciiWhitespace(pair[1])), message));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::MeasureSpec> ParseMeasureSpec(std::string_view text) {
  if (ReplaceInvalidUtf8(text) != text) {
    return Error(Reason::kBadParameter, "the spec is not well-formed UTF-8").Field("id");
  }
  const size_t colon = text.find(':');
  v1::MeasureSpec spec;
  spec.set_id(std::string(absl::StripAsciiWhitespace(ToAbsl(text.substr(0, colon)))));
  if (spec.id().empty()) {
    return Error(Reason::kUnknownMeasure, StrCat("the spec '", text, "' names no measure"))
        .Field("id");
  }
  if (colon == std::string_view::npos) return spec;
  const FieldDescriptor* field = FindParameters(spec.id());
  if (field == nullptr) {
    return Error(Reason::kUnknownMeasure, StrCat("no measure is called '", spec.id(), "'"))
        .Field("id");
  }
  TENON_RETURN_IF_ERROR(
      SetParameters(text.substr(colon + 1), spec.GetReflection()->MutableMessage(&spec, field)));
  return spec;
}

}  // namespace tenon::client
