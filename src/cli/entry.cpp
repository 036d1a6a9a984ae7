#include "src/cli/entry.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <vector>

namespace mxfp4::cli {

namespace {

/// Options of these groups stand in sections of their own, since several commands have them.
const std::map<std::string, std::string> sections = {
    {"Resources", "several commands"}, {"Many nodes", "several commands"}, {"General", "all commands"}};

std::map<const CLI::Option*, std::string>& manuals() {
  static std::map<const CLI::Option*, std::string> texts;
  return texts;
}

/// "N" -> " Ar N"; "auto|I/N" -> " Cm auto | Ar I/N". Words in capitals or digits are places for values.
std::string mdoc_value(const std::string& value) {
  std::string out;
  for (const std::string& word : CLI::detail::split(value, '|')) {
    const bool is_literal = !word.empty() && std::islower(static_cast<unsigned char>(word[0]));
    const char* macro = is_literal ? "Cm" : "Ar";
    out += fmt::format("{}{} {}", out.empty() ? " " : " | ", macro, word);
  }
  return out;
}

/// ".It Fl q , Fl -quiet"
std::string mdoc_head(const CLI::Option& option) {
  std::string names;
  for (const std::string& name : option.get_snames()) names += fmt::format("{}Fl {}", names.empty() ? "" : " , ", name);
  for (const std::string& name : option.get_lnames())
    names += fmt::format("{}Fl -{}", names.empty() ? "" : " , ", name);
  const bool has_value = option.get_expected_max() != 0 && option.get_type_size() != 0;
  return ".It " + names + (has_value ? mdoc_value(option.get_type_name()) : "") + "\n";
}

std::string mdoc_text(const CLI::Option& option) {
  const auto manual = manuals().find(&option);
  const std::string text = manual == manuals().end() ? "" : manual->second;
  return text.empty() ? option.get_description() + ".\n" : text + "\n";
}

/// An option as it stands in the page, and the commands that have it.
struct Item {
  std::string section, head, text;
  std::vector<std::string> commands;
};

/// The same option of several commands is one item.
std::vector<Item> items_of(const CLI::App& root) {
  std::vector<Item> items;
  for (const CLI::App* command : root.get_subcommands([](const CLI::App*) { return true; }))
    for (const CLI::Option* option : command->get_options([](const CLI::Option* o) { return !o->get_positional(); })) {
      const auto section = sections.find(option->get_group());
      const bool is_shared = section != sections.end();
      Item item{is_shared ? section->second : command->get_name(), mdoc_head(*option), mdoc_text(*option), {}};
      const auto same = std::find_if(items.begin(), items.end(),
                                     [&](const Item& i) { return i.head == item.head && i.text == item.text; });
      Item& kept = same == items.end() ? items.emplace_back(std::move(item)) : *same;
      kept.commands.push_back(command->get_name());
    }
  return items;
}

std::string to_mdoc(Item item) {
  std::string who;
  if (item.section == "several commands")
    who = fmt::format(".Pq {}\n", fmt::join(item.commands, ", "));
  else if (item.section != "all commands" && item.commands.size() > 1)
    who = fmt::format(".Pq also {}\n", fmt::join(item.commands.begin() + 1, item.commands.end(), ", "));
  return item.head + who + item.text;
}

}  // namespace

CLI::Option* declare(CLI::Option* option, const Entry& entry) {
  if (!entry.value.empty()) option->type_name(entry.value);
  if (*entry.variable) option->envname(entry.variable);
  manuals()[option] = entry.manual;
  return option;
}

std::string manual_lists(const CLI::App& root) {
  const std::vector<Item> items = items_of(root);
  std::vector<std::string> names;
  for (const Item& item : items)
    if (std::find(names.begin(), names.end(), item.section) == names.end()) names.push_back(item.section);
  std::string out;
  for (const std::string& name : names) {
    out += fmt::format(".\\\" {{{}\n", name);
    for (const Item& item : items)
      if (item.section == name) out += to_mdoc(item);
    out += ".\\\" }\n";
  }
  return out;
}

}  // namespace mxfp4::cli
