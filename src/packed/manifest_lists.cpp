#include "src/packed/manifest_lists.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/checkpoint/checkpoint.h"
#include "src/packed/manifest_format.h"

namespace mxfp4 {

namespace {

constexpr std::string_view index_begin = "\"index\": ", index_end = "},";

bool is_empty_list(const Json& holder, const char* key) {
  const auto list = holder.is_object() ? holder.find(key) : holder.end();
  return holder.is_object() && list != holder.end() && list->is_array() && list->empty();
}

/// Takes the text in blocks, and lists its lines' ranges or keeps them.
class Splitter {
 public:
  void take(std::string_view block) {
    while (!block.empty()) {
      const size_t end = std::min(block.find('\n'), block.size());
      add(block.substr(0, end));
      block.remove_prefix(end);
      if (block.empty()) return;
      end_line();
      block.remove_prefix(1);
    }
  }

  /// False where the text is laid out in another way.
  bool finish(SplitManifest& out) {
    if (line_.bytes > 0) end_line();
    if (!valid_ || entries_ || copied_lists_ != 1) return false;
    out_.rest = parse_json(rest_, manifest_name);
    if (!is_empty_list(out_.rest, "copied") || !out_.rest.contains("sets")) return false;
    const Json& sets = out_.rest["sets"];
    if (!sets.is_array() || sets.size() != out_.tensors.size()) return false;
    const auto source = out_.rest.find("source");
    if (out_.index.bytes > 0 && (source == out_.rest.end() || json_string(*source, "index", "none") != ""))
      return false;
    if (!std::all_of(sets.begin(), sets.end(), [](const Json& set) { return is_empty_list(set, "tensors"); }))
      return false;
    out = std::move(out_);
    return true;
  }

 private:
  void add(std::string_view part) {
    if (part.empty()) return;
    if (line_.bytes == 0) {
      first_ = part.front();
      if (entries_ && first_ == ']') close_list();
      in_index_ = !entries_ && part.starts_with(index_begin);
    }
    before_last_ = part.size() > 1 ? part[part.size() - 2] : last_;
    last_ = part.back();
    line_.bytes += int64_t(part.size());
    if (!entries_ && !in_index_) rest_ += part;
  }

  void end_line() {
    if (entries_)
      add_entry();
    else if (std::exchange(in_index_, false))
      add_index();
    else
      end_line_of_rest();
    line_ = {line_.offset + line_.bytes + 1, 0};
  }

  void add_entry() {
    valid_ &= more_ && line_.bytes > 0 && first_ == '{';
    more_ = last_ == ',';
    entries_->push_back({line_.offset, line_.bytes - (more_ ? 1 : 0)});
  }

  void add_index() {
    const auto begin = int64_t(index_begin.size()), bytes = line_.bytes - begin - int64_t(index_end.size());
    valid_ &= out_.index.bytes == 0 && bytes > 0 && before_last_ == index_end[0] && last_ == index_end[1];
    out_.index = {line_.offset + begin, bytes};
    rest_.append(index_begin).append("\"\"").append(index_end) += '\n';
  }

  void close_list() {
    valid_ &= entries_->empty() || !more_;
    entries_ = nullptr;
  }

  void end_line_of_rest() {
    rest_ += '\n';
    const auto line = std::string_view(rest_).substr(rest_.size() - 1 - size_t(line_.bytes));
    if (line == sets_begin && out_.sets.offset == 0) out_.sets.offset = line_.offset + line_.bytes + 1;
    if (line == "\"copied\": [\n") {
      valid_ &= copied_lists_++ == 0;
      entries_ = &out_.copied;
    } else if (line == "\"tensors\": [\n") {
      entries_ = &out_.tensors.emplace_back();
    }
    more_ = true;
  }

  SplitManifest out_;
  std::string rest_;
  std::vector<TextRange>* entries_ = nullptr;  // of the list that the line stands in
  TextRange line_;
  char first_ = 0, before_last_ = 0, last_ = 0;  // of the line
  bool valid_ = true, more_ = true, in_index_ = false;
  int copied_lists_ = 0;
};

}  // namespace

SplitManifest split_manifest(const LongText& text) {
  SplitManifest out;
  Splitter splitter;
  text.give({0, text.bytes()}, [&](std::string_view block) { splitter.take(block); });
  if (!splitter.finish(out)) return {parse_json(text.read({0, text.bytes()}), manifest_name), {}, {}};
  const int64_t end = text.bytes() - int64_t(std::strlen(sets_end));
  if (out.sets.offset > 0 && end >= out.sets.offset && text.read({end, text.bytes() - end}) == sets_end)
    out.sets.bytes = end - out.sets.offset;
  return out;
}

}  // namespace mxfp4
