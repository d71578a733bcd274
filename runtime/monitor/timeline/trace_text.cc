#include "runtime/monitor/timeline/trace_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ronda {
namespace {

void AppendQuoted(absl::string_view text, std::string* json) {
  json->push_back('"');
  for (const char c : text) {
    if (c == '"' || c == '\\') json->push_back('\\');
    if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(json, "\\u%04x", c);
    } else {
      json->push_back(c);
    }
  }
  json->push_back('"');
}

// `,"name":`, without the comma if it is the first member.
void AppendKey(absl::string_view name, std::string* json) {
  if (!json->empty()) json->push_back(',');
  AppendQuoted(name, json);
  json->push_back(':');
}

}  // namespace

TraceArgs& TraceArgs::Add(absl::string_view name, uint64_t value) {
  AppendKey(name, &json_);
  absl::StrAppend(&json_, value);
  return *this;
}

TraceArgs& TraceArgs::Add(absl::string_view name, absl::string_view value) {
  AppendKey(name, &json_);
  AppendQuoted(value, &json_);
  return *this;
}

void TraceText::Begin(const Head& head) {
  if (!is_first_) text_ += ",\n";
  is_first_ = false;
  absl::StrAppend(&text_, "{\"ph\":\"", head.phase, "\",\"pid\":", process_, ",\"tid\":", head.row, ",\"name\":");
  AppendQuoted(head.name, &text_);
}

void TraceText::End(const TraceArgs& args) {
  if (!args.json().empty()) absl::StrAppend(&text_, ",\"args\":{", args.json(), "}");
  text_ += "}";
}

// Three digits behind the point: a double, as which viewers read it, still tells nanoseconds apart after 100 days.
void TraceText::AppendMicroseconds(absl::string_view field, int64_t nanoseconds) {
  const int64_t positive = nanoseconds < 0 ? 0 : nanoseconds;
  const int64_t fraction = positive % 1000;
  absl::StrAppend(&text_, ",\"", field, "\":", positive / 1000, ".", absl::Dec(fraction, absl::kZeroPad3));
}

void TraceText::NameProcess(absl::string_view name) {
  Begin({.phase = "M", .row = 0, .name = "process_name"});
  End(TraceArgs().Add("name", name));
  Begin({.phase = "M", .row = 0, .name = "process_sort_index"});
  End(TraceArgs().Add("sort_index", static_cast<uint64_t>(process_)));
}

void TraceText::NameRow(int row, absl::string_view name) {
  Begin({.phase = "M", .row = row, .name = "thread_name"});
  End(TraceArgs().Add("name", name));
  Begin({.phase = "M", .row = row, .name = "thread_sort_index"});
  End(TraceArgs().Add("sort_index", static_cast<uint64_t>(row)));
}

void TraceText::Span(int row, absl::string_view name, int64_t begin, int64_t end, const TraceArgs& args) {
  Begin({.phase = "X", .row = row, .name = name});
  AppendMicroseconds("ts", begin);
  AppendMicroseconds("dur", end - begin);
  End(args);
}

void TraceText::OpenSpan(int row, absl::string_view name, int64_t begin, const TraceArgs& args) {
  Begin({.phase = "B", .row = row, .name = name});
  AppendMicroseconds("ts", begin);
  End(args);
}

void TraceText::Mark(int row, absl::string_view name, int64_t time, const TraceArgs& args) {
  Begin({.phase = "i", .row = row, .name = name});
  text_ += ",\"s\":\"t\"";
  AppendMicroseconds("ts", time);
  End(args);
}

}  // namespace ronda
