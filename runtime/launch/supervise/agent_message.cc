#include "runtime/launch/supervise/agent_message.h"

#include <optional>
#include <utility>

namespace ronda {
namespace {

// Far more than an environment or a command line may have.
constexpr uint64_t kMaxLength = uint64_t{64} << 20;
constexpr size_t kLengthSize = 8;

// Lowest byte first on every host.
void AppendNumber(uint64_t number, std::string* out) {
  for (size_t i = 0; i < 8; ++i) out->push_back(static_cast<char>(number >> (8 * i)));
}

uint64_t DecodeNumber(absl::string_view bytes) {
  uint64_t number = 0;
  for (size_t i = 0; i < 8; ++i) number |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  return number;
}

// Takes numbers and texts from the front of bytes that may be anything.
class Cursor {
 public:
  explicit Cursor(absl::string_view bytes) : bytes_(bytes) {}

  std::optional<uint64_t> Number() {
    if (bytes_.size() < 8) return std::nullopt;
    const uint64_t number = DecodeNumber(bytes_);
    bytes_.remove_prefix(8);
    return number;
  }

  std::optional<std::string> Text() {
    const std::optional<uint64_t> size = Number();
    if (!size || *size > bytes_.size()) return std::nullopt;
    std::string text(bytes_.substr(0, *size));
    bytes_.remove_prefix(*size);
    return text;
  }

  bool at_end() const { return bytes_.empty(); }

 private:
  absl::string_view bytes_;
};

std::optional<AgentMessage> Decode(absl::string_view bytes) {
  Cursor cursor(bytes);
  AgentMessage message;
  const std::optional<uint64_t> kind = cursor.Number();
  if (!kind || *kind > static_cast<uint64_t>(AgentMessage::Kind::kFailure)) return std::nullopt;
  message.kind = static_cast<AgentMessage::Kind>(*kind);
  const std::optional<uint64_t> numbers = cursor.Number();
  for (uint64_t i = 0; i < numbers.value_or(0); ++i) {
    const std::optional<uint64_t> number = cursor.Number();
    if (!number) return std::nullopt;
    message.numbers.push_back(static_cast<int64_t>(*number));
  }
  while (!cursor.at_end()) {
    std::optional<std::string> text = cursor.Text();
    if (!text) return std::nullopt;
    message.texts.push_back(*std::move(text));
  }
  return numbers ? std::optional<AgentMessage>(std::move(message)) : std::nullopt;
}

}  // namespace

const std::string& AgentMessage::text(size_t index) const {
  static const std::string kNone;
  return index < texts.size() ? texts[index] : kNone;
}

std::string Encode(const AgentMessage& message) {
  std::string body;
  AppendNumber(static_cast<uint64_t>(message.kind), &body);
  AppendNumber(message.numbers.size(), &body);
  for (const int64_t number : message.numbers) AppendNumber(static_cast<uint64_t>(number), &body);
  for (const std::string& text : message.texts) {
    AppendNumber(text.size(), &body);
    body += text;
  }
  std::string encoded;
  AppendNumber(body.size(), &encoded);
  return encoded + body;
}

bool AgentMessageReader::SkipPreface() {
  if (greeted_) return true;
  const size_t at = bytes_.find(kAgentGreeting.data(), 0, kAgentGreeting.size());
  if (at == std::string::npos) return false;
  bytes_.erase(0, at + kAgentGreeting.size());
  greeted_ = true;
  return true;
}

absl::Status AgentMessageReader::Feed(absl::string_view bytes, absl::FunctionRef<void(AgentMessage)> emit) {
  bytes_.append(bytes.data(), bytes.size());
  if (!SkipPreface()) {
    return bytes_.size() < kMaxLength ? absl::OkStatus() : absl::InvalidArgumentError("no agent answers");
  }
  size_t begin = 0;
  while (bytes_.size() - begin >= kLengthSize) {
    const uint64_t length = DecodeNumber(absl::string_view(bytes_).substr(begin));
    if (length > kMaxLength) return absl::InvalidArgumentError("a message of the agent is too long");
    if (bytes_.size() - begin - kLengthSize < length) break;
    auto message = Decode(absl::string_view(bytes_).substr(begin + kLengthSize, length));
    if (!message) return absl::InvalidArgumentError("a message of the agent makes no sense");
    begin += kLengthSize + length;
    emit(*std::move(message));
  }
  bytes_.erase(0, begin);
  return absl::OkStatus();
}

}  // namespace ronda
