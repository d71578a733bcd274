#include "client/argument_checks.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// The bytes that may follow a lead byte: `length` of them in all with it, the second within [low, high].
struct Sequence {
  size_t length;
  uint8_t low;
  uint8_t high;
};

// length 0: `lead` begins no character.
Sequence SequenceOf(uint8_t lead) {
  if (lead < 0x80) return {lead >= 0x20 && lead != 0x7f ? size_t{1} : size_t{0}, 0, 0};
  if (lead < 0xc2) return {0, 0, 0};  // a continuation, or an overlong form of ASCII
  if (lead < 0xe0) return {2, 0x80, 0xbf};
  if (lead == 0xe0) return {3, 0xa0, 0xbf};  // else overlong
  if (lead == 0xed) return {3, 0x80, 0x9f};  // else a surrogate
  if (lead < 0xf0) return {3, 0x80, 0xbf};
  if (lead == 0xf0) return {4, 0x90, 0xbf};  // else overlong
  if (lead < 0xf4) return {4, 0x80, 0xbf};
  if (lead == 0xf4) return {4, 0x80, 0x8f};  // else beyond U+10FFFF
  return {0, 0, 0};
}

// Counts printable ASCII at the beginning of `text`, as most names are: a multiple of eight bytes. More may follow.
size_t AsciiPrefix(absl::string_view text) {
  constexpr uint64_t kEach = 0x0101010101010101;  // times a byte: that byte in each of the eight
  constexpr uint64_t kHigh = 0x80 * kEach;
  size_t i = 0;
  for (; text.size() - i >= sizeof(uint64_t); i += sizeof(uint64_t)) {
    uint64_t bytes;
    std::memcpy(&bytes, text.data() + i, sizeof(bytes));
    // Without a high bit anywhere no sum carries into the next byte: from 0x7f on the one sets the high bit, and below
    // 0x20 the other leaves it clear.
    const uint64_t too_high = bytes + (0x80 - 0x7f) * kEach;
    const uint64_t high_enough = bytes + (0x80 - 0x20) * kEach;
    if (((bytes | too_high | ~high_enough) & kHigh) != 0) break;
  }
  return i;
}

}  // namespace

bool IsPrintableUtf8(absl::string_view text) {
  size_t i = AsciiPrefix(text);
  while (i < text.size()) {
    // Most of the rest is printable ASCII, too.
    if (text[i] >= 0x20 && text[i] < 0x7f) {
      ++i;
      continue;
    }
    const Sequence sequence = SequenceOf(static_cast<uint8_t>(text[i]));
    if (sequence.length == 0 || sequence.length > text.size() - i) return false;
    for (size_t k = 1; k < sequence.length; ++k) {
      const auto byte = static_cast<uint8_t>(text[i + k]);
      const uint8_t low = k == 1 ? sequence.low : 0x80;
      const uint8_t high = k == 1 ? sequence.high : 0xbf;
      if (byte < low || byte > high) return false;
    }
    i += sequence.length;
  }
  return true;
}

namespace {

#define RONDA_DTYPE_CHECK(enumerator, suffix, name, type, kind, infinity) \
  static_assert(static_cast<int>(DType::enumerator) == RONDA_##suffix);
RONDA_DTYPE_TABLE(RONDA_DTYPE_CHECK)
#undef RONDA_DTYPE_CHECK

// Prefix of the names that Ronda itself gives: to barriers, for instance.
constexpr absl::string_view kReservedPrefix = "ronda/";

absl::Status CheckShape(const ronda_tensor& tensor, const Submission& submission) {
  if (tensor.ndim < 0 || tensor.ndim > RONDA_MAX_NDIM) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(submission), ": tensor.ndim is ", tensor.ndim, ", expected 0 to ", RONDA_MAX_NDIM));
  }
  if (tensor.ndim > 0 && tensor.shape == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(submission), ": tensor.shape is NULL, but tensor.ndim is ",
                                                   tensor.ndim, ": pass that many dimensions"));
  }
  return absl::OkStatus();
}

// Sets all fields to their defaults, and keeps the submission's memory.
void Reset(Submission* submission) {
  static const Submission* const defaults = new Submission;
  *submission = *defaults;
}

// `seconds` as the C ABI writes them: 0 leaves *limit, negative is never.
absl::Status SetLimit(const Submission& submission, absl::string_view argument, double seconds, absl::Duration* limit) {
  if (std::isnan(seconds)) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(submission), ": call.", argument, " is not a number"));
  }
  if (seconds != 0) *limit = seconds < 0 ? absl::InfiniteDuration() : absl::Seconds(seconds);
  return absl::OkStatus();
}

absl::Status SetMemory(const ronda_call_options& call, Submission* submission) {
  const int raw_memory = RawValue(call.memory);
  const std::optional<Memory> memory = MemoryFromInt(raw_memory);
  if (!memory) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(*submission), ": call.memory ", raw_memory,
                                                   " is not one of ronda_memory, 0 to ", kMemoryCount - 1));
  }
  if (*memory == Memory::kHost && call.stream != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(*submission),
                     ": there is a call.stream, but call.memory is RONDA_MEMORY_HOST: set it to "
                     "RONDA_MEMORY_CUDA if the buffers are a GPU's, or leave the stream out"));
  }
  submission->request.memory = *memory;
  submission->stream = call.stream;
  return absl::OkStatus();
}

}  // namespace

std::string Describe(const Submission& submission) {
  const std::string& name = submission.request.name;
  return name.empty() ? Name(submission.request.op) : absl::StrCat(Name(submission.request.op), " '", name, "'");
}

absl::Status CheckName(absl::string_view operation, absl::string_view what, const char* name) {
  if (name == nullptr || *name == '\0') {
    return absl::InvalidArgumentError(absl::StrCat(operation, ": ", what, " is ", name == nullptr ? "NULL" : "empty",
                                                   ": give each tensor a name, the same on every rank"));
  }
  const size_t length = strnlen(name, RONDA_MAX_NAME_LENGTH + 1);
  if (length > RONDA_MAX_NAME_LENGTH) {
    return absl::InvalidArgumentError(absl::StrCat(operation, ": ", what, " '", absl::string_view(name, 40),
                                                   "...' is longer than ", RONDA_MAX_NAME_LENGTH, " bytes"));
  }
  if (!IsPrintableUtf8({name, length})) {
    return absl::InvalidArgumentError(
        absl::StrCat(operation, ": ", what, " is not UTF-8 text without control characters"));
  }
  if (absl::StartsWith(name, kReservedPrefix)) {
    return absl::InvalidArgumentError(absl::StrCat(operation, ": ", what, " '", name, "' begins with '",
                                                   kReservedPrefix, "', as only names that Ronda itself gives do"));
  }
  return absl::OkStatus();
}

absl::Status FromTensor(OpType op, const ronda_tensor& tensor, Submission* submission) {
  Reset(submission);
  submission->request.op = op;
  if (op != OpType::kSendRecv && tensor.name != nullptr) {
    RONDA_RETURN_IF_ERROR(CheckName(Name(op), "tensor.name", tensor.name));
    submission->request.name = tensor.name;
  }
  const int raw_dtype = RawValue(tensor.dtype);
  const std::optional<DType> dtype = DTypeFromInt(raw_dtype);
  if (!dtype) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(*submission), ": tensor.dtype ", raw_dtype,
                                                   " is not one of ronda_dtype, 0 to ", kDTypeCount - 1));
  }
  submission->request.dtype = *dtype;
  RONDA_RETURN_IF_ERROR(CheckShape(tensor, *submission));
  submission->request.shape.assign(tensor.shape, tensor.shape + tensor.ndim);
  return absl::OkStatus();
}

absl::Status SetCall(const ronda_call_options& call, const Caller& caller, Submission* submission) {
  submission->request.process_set = call.process_set;
  RONDA_RETURN_IF_ERROR(SetMemory(call, submission));
  if (call.warning_s == 0 && call.deadline_s == 0) return absl::OkStatus();
  WaitLimits limits = caller.limits;
  RONDA_RETURN_IF_ERROR(SetLimit(*submission, "warning_s", call.warning_s, &limits.warning));
  RONDA_RETURN_IF_ERROR(SetLimit(*submission, "deadline_s", call.deadline_s, &limits.deadline));
  submission->request.limits = limits;
  return absl::OkStatus();
}

namespace {

// `value` of an option in `unit`s; 0 keeps *duration and a negative one is `negative`.
absl::Status SetDuration(absl::string_view option, double value, absl::Duration unit, absl::Duration negative,
                         absl::Duration* duration) {
  if (std::isnan(value)) return absl::InvalidArgumentError(absl::StrCat("ronda_options.", option, " is not a number"));
  if (value != 0) *duration = value < 0 ? negative : value * unit;
  return absl::OkStatus();
}

void SetSize(int64_t value, size_t* size) {
  if (value != 0) *size = value < 0 ? 0 : static_cast<size_t>(value);
}

absl::Status SetTunables(const ronda_options& options, Tunables* tunables) {
  if (options.start_timeout_s < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("ronda_options.start_timeout_s is ", options.start_timeout_s, ": it must not be negative"));
  }
  const absl::Duration never = absl::InfiniteDuration();
  RONDA_RETURN_IF_ERROR(SetDuration("cycle_time_ms", options.cycle_time_ms, absl::Milliseconds(1), absl::ZeroDuration(),
                                    &tunables->cycle_time));
  RONDA_RETURN_IF_ERROR(
      SetDuration("stall_warning_s", options.stall_warning_s, absl::Seconds(1), never, &tunables->stall_warning));
  RONDA_RETURN_IF_ERROR(
      SetDuration("stall_deadline_s", options.stall_deadline_s, absl::Seconds(1), never, &tunables->stall_deadline));
  RONDA_RETURN_IF_ERROR(SetDuration("start_timeout_s", options.start_timeout_s, absl::Seconds(1), absl::ZeroDuration(),
                                    &tunables->start_timeout));
  SetSize(options.fusion_threshold, &tunables->fusion_threshold);
  SetSize(options.cache_capacity, &tunables->cache_capacity);
  return absl::OkStatus();
}

absl::Status SetProcessSets(const ronda_options& options, std::vector<std::vector<RankId>>* sets) {
  if (options.process_set_count < 0 || (options.process_set_count > 0 && options.process_sets == nullptr)) {
    return absl::InvalidArgumentError(absl::StrCat("ronda_options.process_set_count is ", options.process_set_count,
                                                   ": pass that many lists in process_sets"));
  }
  for (int i = 0; i < options.process_set_count; ++i) {
    const ronda_rank_list& list = options.process_sets[i];
    if (list.count <= 0 || list.ranks == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("ronda_options.process_sets[", i, "] has no ranks: list those of the set"));
    }
    sets->emplace_back(list.ranks, list.ranks + list.count);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ApplyOptions(const ronda_options* options, ClientOptions* client) {
  if (options == nullptr) return absl::OkStatus();
  RONDA_ASSIGN_OR_RETURN(const ronda_options known, CopySized(options, "ronda_options"));
  RONDA_RETURN_IF_ERROR(SetTunables(known, &client->tunables));
  return SetProcessSets(known, &client->process_sets);
}

}  // namespace ronda
