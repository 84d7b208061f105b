#include "client/cpp/tool/arguments.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_split.h"
#include "backends/core/error.h"

namespace tenon::tool {
namespace {

constexpr size_t kHelpColumn = 28;
constexpr size_t kHelpWidth = 92;

Error BadOption(std::string_view name, const std::string& what) {
  return Error(Reason::kBadParameter, what).Field(StrCat("--", name));
}

const Option* FindOption(const CommandSpec& spec, std::string_view name) {
  for (const Option& option : spec.options) {
    if (option.name == name) return &option;
  }
  return nullptr;
}

Error UnknownOption(const CommandSpec& spec, std::string_view name) {
  std::vector<std::string> names = {"help"};
  for (const Option& option : spec.options) names.push_back(option.name);
  const std::string nearest = Nearest(name, names);
  return BadOption(name,
                   StrCat("unknown option '--", name, "'",
                          nearest.empty() ? "" : StrCat("; did you mean '--", nearest, "'?")));
}

// Edits (insert, delete, replace) that turn one word into the other.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

absl::Status CheckPositionals(const CommandSpec& spec, size_t count) {
  if (count < spec.min_positionals) {
    return Error(Reason::kBadParameter,
                 StrCat("arguments are missing: tenon ", spec.name, " ", spec.usage));
  }
  if (count > spec.max_positionals) {
    return Error(Reason::kBadParameter,
                 StrCat("too many arguments (", count, "): tenon ", spec.name, " ", spec.usage));
  }
  return absl::OkStatus();
}

// Appends `text` in lines that begin at `indent`; the first line goes on where the text stands.
void AppendWrapped(std::string_view text, size_t indent, std::string* out) {
  size_t column = indent;
  bool first = true;
  for (const absl::string_view word : absl::StrSplit(ToAbsl(text), ' ', absl::SkipEmpty())) {
    if (!first && column + 1 + word.size() > kHelpWidth) {
      *out += StrCat("\n", std::string(indent, ' '));
      column = indent;
      first = true;
    }
    *out += StrCat(first ? "" : " ", word);
    column += word.size() + (first ? 0 : 1);
    first = false;
  }
  *out += "\n";
}

void AppendOption(const std::string& left, std::string_view help, std::string* out) {
  std::string line = StrCat("  ", left);
  line += line.size() + 1 > kHelpColumn ? StrCat("\n", std::string(kHelpColumn, ' '))
                                        : std::string(kHelpColumn - line.size(), ' ');
  *out += line;
  AppendWrapped(help, kHelpColumn, out);
}

}  // namespace

std::optional<std::string> Arguments::Get(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) return std::nullopt;
  return found->second.back();
}

std::vector<std::string> Arguments::All(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? std::vector<std::string>() : found->second;
}

absl::StatusOr<Arguments> ParseArguments(const CommandSpec& spec,
                                         std::span<const std::string> arguments) {
  Arguments parsed;
  bool options_end = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    // "->" begins an einsum, not an option.
    if (options_end || argument.size() < 2 || argument[0] != '-' || argument[1] == '>') {
      parsed.positionals_.push_back(argument);
      continue;
    }
    if (argument == "--") {
      options_end = true;
      continue;
    }
    if (argument == "-h" || argument == "--help") {
      parsed.values_["help"] = {""};
      continue;
    }
    if (argument[1] != '-') return UnknownOption(spec, argument.substr(1));
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
    const Option* option = FindOption(spec, name);
    if (option == nullptr) return UnknownOption(spec, name);
    std::string value;
    if (option->value.empty()) {
      if (equals != std::string::npos) {
        return BadOption(name, StrCat("option '--", name, "' takes no value"));
      }
    } else if (equals != std::string::npos) {
      value = argument.substr(equals + 1);
    } else if (i + 1 < arguments.size()) {
      value = arguments[++i];
    } else {
      return BadOption(name, StrCat("option '--", name, "' needs a value: ", option->value));
    }
    std::vector<std::string>& values = parsed.values_[name];
    if (!values.empty() && !option->repeatable) {
      return BadOption(name, StrCat("option '--", name, "' is given twice"));
    }
    values.push_back(std::move(value));
  }
  if (!parsed.Has("help")) {
    TENON_RETURN_IF_ERROR(CheckPositionals(spec, parsed.positionals_.size()));
  }
  return parsed;
}

std::string HelpText(const CommandSpec& spec) {
  std::string text = StrCat("Usage: tenon ", spec.name, spec.usage.empty() ? "" : " ", spec.usage,
                            " [options]\n\n", spec.summary, "\n");
  if (!spec.details.empty()) text += StrCat("\n", spec.details, "\n");
  text += StrCat("\nExample:\n  ", spec.example, "\n\nOptions:\n");
  for (const Option& option : spec.options) {
    AppendOption(StrCat("--", option.name, option.value.empty() ? "" : " ", option.value),
                 StrCat(option.help, option.repeatable ? " May be repeated." : ""), &text);
  }
  AppendOption("--help", "Print this text.", &text);
  text += "\nExit codes:\n  ";
  AppendWrapped(spec.exit_codes.empty() ? kExitCodes : spec.exit_codes, 2, &text);
  return text;
}

std::string Nearest(std::string_view word, std::span<const std::string> candidates) {
  const std::string* best = nullptr;
  // A third of the letters wrong is still a typing error; more is another word.
  size_t best_distance = std::max<size_t>(word.size() / 3, 1) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = EditDistance(word, candidate);
    if (distance < best_distance) {
      best = &candidate;
      best_distance = distance;
    }
  }
  return best == nullptr ? "" : *best;
}

}  // namespace tenon::tool
