// Completion for shells, made of the tables that the parser itself goes by.

#include <utility>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "backends/core/error.h"
#include "client/cpp/tool/commands.h"
#include "client/cpp/tool/json.h"

namespace tenon::tool {
namespace {

// In single quotes, for all three shells.
std::string Quoted(std::string_view text) {
  return StrCat("'", absl::StrReplaceAll(ToAbsl(text), {{"'", "'\\''"}}), "'");
}

std::string First(const std::string& name) { return name.substr(0, name.find(' ')); }
bool IsOfFamily(const std::string& name) { return name.find(' ') != std::string::npos; }

// The words after `tenon`: names of commands, each family once.
std::vector<std::pair<std::string, std::string>> Roots(const std::vector<CommandSpec>& specs) {
  std::vector<std::pair<std::string, std::string>> roots;
  for (const CommandSpec& spec : specs) {
    const std::string root = First(spec.name);
    if (!roots.empty() && roots.back().first == root) continue;
    roots.emplace_back(
        root, IsOfFamily(spec.name) ? StrCat("Commands about a ", root, ".") : spec.summary);
  }
  roots.emplace_back("help", "Tells how to use a command.");
  return roots;
}

// The second words of a family's commands.
std::vector<std::pair<std::string, std::string>> Branches(const std::vector<CommandSpec>& specs,
                                                          const std::string& root) {
  std::vector<std::pair<std::string, std::string>> branches;
  for (const CommandSpec& spec : specs) {
    if (IsOfFamily(spec.name) && First(spec.name) == root) {
      branches.emplace_back(spec.name.substr(root.size() + 1), spec.summary);
    }
  }
  return branches;
}

std::vector<Option> OptionsOf(const CommandSpec& spec) {
  std::vector<Option> options = spec.options;
  options.push_back({"help", "", "Print the help text."});
  return options;
}

std::string Names(const std::vector<std::pair<std::string, std::string>>& words) {
  return absl::StrJoin(words, " ", [](std::string* out, const auto& word) { *out += word.first; });
}

// What a case of the command's name does, in bash and zsh alike.
template <typename Body>
std::string Cases(const std::vector<CommandSpec>& specs, Body body) {
  std::string text = "  case $command in\n";
  for (const CommandSpec& spec : specs) {
    text += StrCat("    ", Quoted(spec.name), ")\n", body(spec), "      ;;\n");
  }
  return text + "  esac\n";
}

// Families take their second word; `position` is the shell's variable for the word's place.
template <typename Offer>
std::string Families(const std::vector<CommandSpec>& specs, const std::string& at_second,
                     const std::string& second, Offer offer) {
  std::string text = "  case $command in\n";
  for (const auto& [root, summary] : Roots(specs)) {
    const auto branches = Branches(specs, root);
    if (branches.empty()) continue;
    text += StrCat("    ", root, ")\n      if ", at_second, "; then\n", offer(branches),
                   "        return\n      fi\n      command=\"", root, " ", second, "\" ;;\n");
  }
  return text + "  esac\n";
}

std::string Bash(const std::vector<CommandSpec>& specs) {
  const auto offer = [](const std::vector<std::pair<std::string, std::string>>& words) {
    return StrCat("        COMPREPLY=($(compgen -W ", Quoted(Names(words)), " -- \"$cur\"))\n");
  };
  const auto body = [](const CommandSpec& spec) {
    std::string flags;
    std::string values;
    std::string choices;
    for (const Option& option : OptionsOf(spec)) {
      flags += StrCat(flags.empty() ? "" : " ", "--", option.name);
      if (!option.value.empty() && option.choices.empty()) {
        values += StrCat(values.empty() ? "" : "|", "--", option.name);
      }
      if (option.choices.empty()) continue;
      choices += StrCat("        --", option.name,
                        ") words=", Quoted(absl::StrJoin(option.choices, " ")), " ;;\n");
    }
    std::string text = StrCat("      flags=", Quoted(flags), "\n");
    if (!spec.choices.empty()) {
      text += StrCat("      words=", Quoted(absl::StrJoin(spec.choices, " ")), "\n");
    }
    text += StrCat("      case $prev in\n", choices);
    if (!values.empty()) text += StrCat("        ", values, ") words= takes_value=1 ;;\n");
    return text + "      esac\n";
  };
  return StrCat(
      "# Completion of tenon for bash: source this, or install it as completions/tenon.\n"
      "_tenon() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
      "  local command=${COMP_WORDS[1]} flags= words= takes_value=\n"
      "  COMPREPLY=()\n"
      "  if (( COMP_CWORD == 1 )) || [[ $command == help && $COMP_CWORD == 2 ]]; then\n",
      offer(Roots(specs)), "        return\n  fi\n",
      Families(specs, "(( COMP_CWORD == 2 ))", "${COMP_WORDS[2]}", offer), Cases(specs, body),
      "  if [[ -z $takes_value && $cur == -* ]]; then\n"
      "    COMPREPLY=($(compgen -W \"$flags\" -- \"$cur\"))\n"
      "  elif [[ -n $words ]]; then\n"
      "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
      "  else\n"
      "    compopt -o filenames 2>/dev/null\n"
      "    mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
      "  fi\n"
      "}\n"
      "complete -F _tenon tenon\n");
}

std::string Zsh(const std::vector<CommandSpec>& specs) {
  const auto described = [](const std::string& word, const std::string& text) {
    return Quoted(StrCat(absl::StrReplaceAll(word, {{":", "\\:"}}), ":", text));
  };
  const auto offer = [&](const std::vector<std::pair<std::string, std::string>>& words) {
    std::string text = "        words_of=(";
    for (const auto& [word, summary] : words) text += StrCat(" ", described(word, summary));
    return text + " )\n        _describe command words_of\n";
  };
  const auto body = [&](const CommandSpec& spec) {
    std::string text = "      flags=(";
    for (const Option& option : OptionsOf(spec)) {
      text += StrCat(" ", described("--" + option.name, option.help));
    }
    text += " )\n      case $words[CURRENT-1] in\n";
    for (const Option& option : OptionsOf(spec)) {
      if (option.choices.empty()) continue;
      text += StrCat("        --", option.name, ") choices=( ", absl::StrJoin(option.choices, " "),
                     " ) ;;\n");
    }
    text += "      esac\n";
    if (!spec.choices.empty()) {
      text +=
          StrCat("      (( $#choices )) || choices=( ", absl::StrJoin(spec.choices, " "), " )\n");
    }
    return text;
  };
  return StrCat(
      "#compdef tenon\n"
      "_tenon() {\n"
      "  local -a words_of flags choices\n"
      "  local command=$words[2]\n"
      "  if (( CURRENT == 2 )) || [[ $command == help && $CURRENT == 3 ]]; then\n",
      offer(Roots(specs)), "        return\n  fi\n",
      Families(specs, "(( CURRENT == 3 ))", "$words[3]", offer), Cases(specs, body),
      "  if [[ $words[CURRENT] == -* ]]; then\n"
      "    _describe -o option flags\n"
      "  elif (( $#choices )); then\n"
      "    compadd -a choices\n"
      "  else\n"
      "    _files\n"
      "  fi\n"
      "}\n"
      "if [[ $funcstack[1] == _tenon ]]; then _tenon \"$@\"; else compdef _tenon tenon; fi\n");
}

std::string Fish(const std::vector<CommandSpec>& specs) {
  std::string text = "# Completion of tenon for fish.\n";
  for (const auto& [root, summary] : Roots(specs)) {
    text += StrCat("complete -c tenon -n __fish_use_subcommand -f -a ", root, " -d ",
                   Quoted(summary), "\n");
    const auto branches = Branches(specs, root);
    for (const auto& [branch, about] : branches) {
      text += StrCat("complete -c tenon -n '__fish_seen_subcommand_from ", root,
                     "; and not __fish_seen_subcommand_from ", Names(branches), "' -f -a ", branch,
                     " -d ", Quoted(about), "\n");
    }
  }
  for (const CommandSpec& spec : specs) {
    const std::string seen =
        absl::StrReplaceAll(StrCat("__fish_seen_subcommand_from ", spec.name), {{" ", " "}});
    const std::string root = First(spec.name);
    const std::string condition =
        IsOfFamily(spec.name)
            ? StrCat("__fish_seen_subcommand_from ", root, "; and __fish_seen_subcommand_from ",
                     spec.name.substr(root.size() + 1))
            : seen;
    const std::string start = StrCat("complete -c tenon -n ", Quoted(condition));
    for (const Option& option : OptionsOf(spec)) {
      text += StrCat(start, " -l ", option.name, option.value.empty() ? "" : " -r",
                     option.choices.empty()
                         ? ""
                         : StrCat(" -f -a ", Quoted(absl::StrJoin(option.choices, " "))),
                     " -d ", Quoted(option.help), "\n");
    }
    if (spec.choices.empty()) continue;
    text += StrCat(start, " -f -a ", Quoted(absl::StrJoin(spec.choices, " ")), "\n");
  }
  return text;
}

Json Table(const std::vector<CommandSpec>& specs) {
  Json commands = Json::array();
  for (const CommandSpec& spec : specs) {
    Json command;
    command["name"] = spec.name;
    command["usage"] = spec.usage;
    command["summary"] = spec.summary;
    command["options"] = Json::array();
    for (const Option& option : OptionsOf(spec)) {
      command["options"].push_back({{"name", option.name},
                                    {"value", option.value},
                                    {"help", option.help},
                                    {"repeatable", option.repeatable},
                                    {"choices", option.choices}});
    }
    commands.push_back(std::move(command));
  }
  return Json{{"commands", std::move(commands)}};
}

absl::StatusOr<std::string> Make(const Arguments& arguments) {
  const std::vector<CommandSpec> specs = AllCommandSpecs();
  if (arguments.Has("json")) return Dump(Table(specs)) + "\n";
  const std::string shell = arguments.positionals().empty() ? "" : arguments.positionals()[0];
  if (shell == "bash") return Bash(specs);
  if (shell == "zsh") return Zsh(specs);
  if (shell == "fish") return Fish(specs);
  return Error(Reason::kBadParameter,
               StrCat("'", shell, "' is no shell; expected is bash, zsh or fish"))
      .Field("SHELL");
}

}  // namespace

CommandSpec CompletionSpec() {
  CommandSpec spec;
  spec.name = "completion";
  spec.usage = "bash | zsh | fish";
  spec.summary = "Prints what makes a shell complete commands, options and files.";
  spec.details =
      "For good: bash, ~/.local/share/bash-completion/completions/tenon; zsh, _tenon in a folder "
      "of\n"
      "$fpath; fish, ~/.config/fish/completions/tenon.fish. 'cmake --install' has done so.";
  spec.example = "source <(tenon completion bash)";
  spec.exit_codes = kLocalExitCodes;
  spec.options = {{"json", "", "Print all commands and options as one JSON object, instead."}};
  spec.max_positionals = 1;
  spec.choices = {"bash", "zsh", "fish"};
  return spec;
}

int RunCompletion(const Arguments& arguments, const Session& session) {
  const absl::StatusOr<std::string> text = Make(arguments);
  if (!text.ok()) return Fail(session, text.status());
  *session.out << *text;
  return kExitOk;
}

}  // namespace tenon::tool
