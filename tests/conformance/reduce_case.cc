// SPDX-License-Identifier: Apache-2.0

#include "tests/conformance/reduce_case.h"

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/fp8.h"
#include "kernels/cpu/reduce.h"
#include "tests/testing/scalar_reference.h"

namespace ronda::testing {
namespace {

bool IsSigned(DType dtype) { return InfoOf(dtype).kind == DTypeKind::kSigned; }

bool Is8Bit(const ReduceCase& c) {
  return IsFloatingPoint(c.dtype) && (c.wire == WireFormat::kFp8E4M3 || c.wire == WireFormat::kFp8E5M2);
}

// The numbers are so small that sums and products over 8 ranks fit into fp16, and scaled integers into int8.
double RandomValue(const ReduceCase& c, std::mt19937_64& random) {
  if (IsFloatingPoint(c.dtype)) {
    const double magnitude = std::uniform_real_distribution<double>(0.5, 2.0)(random);
    return random() % 2 == 0 ? magnitude : -magnitude;
  }
  const bool is_scaled = !c.prescale.IsIdentity() || !c.postscale.IsIdentity();
  const int64_t limit = is_scaled ? 15 : 100;
  return static_cast<double>(std::uniform_int_distribution<int64_t>(IsSigned(c.dtype) ? -limit : 0, limit)(random));
}

// Computes the result of one segment in an 8-bit wire format.
void ReduceBlocks(const ReduceCase& c, const std::vector<const char*>& inputs, size_t count, char* result) {
  const auto format = c.wire == WireFormat::kFp8E4M3 ? kernels::Fp8Format::kE4M3 : kernels::Fp8Format::kE5M2;
  std::vector<std::string> contributions;
  for (const char* input : inputs) {
    contributions.emplace_back(kernels::Fp8Bytes(count), '\0');
    kernels::EncodeFp8({.src = input,
                        .src_dtype = c.dtype,
                        .count = count,
                        .scale = c.prescale,
                        .format = format,
                        .blocks = contributions.back().data()});
  }
  std::vector<const void*> sources;
  for (const std::string& contribution : contributions) sources.push_back(contribution.data());
  std::string reduced(kernels::Fp8Bytes(count), '\0');
  kernels::ReduceFp8(
      {.sources = sources, .format = format, .op = c.op, .scale = c.postscale, .count = count, .dst = reduced.data()});
  kernels::DecodeFp8(reduced.data(), format, result, c.dtype, count);
}

void ReduceElements(const ReduceCase& c, const std::vector<const char*>& inputs, size_t count, char* result) {
  const DType wire = WireDType(c.dtype, c.wire);
  std::vector<std::string> contributions;
  for (const char* input : inputs) {
    contributions.emplace_back(count * SizeOf(wire), '\0');
    kernels::Convert(input, c.dtype, contributions.back().data(), wire, count, c.prescale);
  }
  std::vector<const void*> sources;
  for (const std::string& contribution : contributions) sources.push_back(contribution.data());
  kernels::Reduce({.sources = sources,
                   .dtype = wire,
                   .op = c.op,
                   .scale = c.postscale,
                   .dst = result,
                   .dst_dtype = c.dtype,
                   .count = count});
}

Part RowsOf(size_t count, int member, int members) {
  const size_t m = static_cast<size_t>(members);
  const size_t i = static_cast<size_t>(member);
  const size_t each = count / m;
  const size_t longer = count % m;  // members that get one more
  return {.begin = i * each + std::min(i, longer), .count = each + (i < longer ? 1 : 0)};
}

// Returns the part of `member`. The parts of the members have random lengths, a random order, and gaps between them.
// `random` must be in the same state for all members.
Part AnyPartOf(size_t count, int member, int members, std::mt19937_64& random) {
  std::vector<size_t> ends;
  for (int i = 0; i < 2 * members; ++i) ends.push_back(random() % (count + 1));
  std::sort(ends.begin(), ends.end());
  const size_t place = (static_cast<size_t>(member) + random()) % static_cast<size_t>(members);
  return {.begin = ends[2 * place], .count = ends[2 * place + 1] - ends[2 * place]};
}

}  // namespace

std::string ToString(const ReduceCase& c) {
  constexpr const char* kReceives[] = {"all", "root", "rows", "any part"};
  return absl::StrCat(Name(c.op), " of ", c.count, " ", Name(c.dtype), " over ", Name(c.wire), ", prescale ",
                      c.prescale.multiplier, "/", c.prescale.divisor, ", postscale ", c.postscale.multiplier, "/",
                      c.postscale.divisor, ", receives ", kReceives[static_cast<int>(c.receives)],
                      c.cut == Cut::kWhole ? ", whole" : ", in pieces",
                      c.placement == Placement::kInPlace ? ", in place" : ", out of place", ", seed ", c.seed);
}

std::vector<size_t> SegmentCounts(const ReduceCase& c) { return CutIntoSegments(c.count, c.cut, c.seed); }

std::vector<Part> PartsOf(const ReduceCase& c, int member, int members) {
  std::mt19937_64 random(c.seed);
  const bool is_root = member == static_cast<int>(c.seed % static_cast<uint64_t>(members));
  std::vector<Part> parts;
  for (size_t count : SegmentCounts(c)) {
    Part part = {.count = count};
    if (c.receives == Receives::kRootAll && !is_root) part = {};
    if (c.receives == Receives::kRows) part = RowsOf(count, member, members);
    if (c.receives == Receives::kAnyPart) part = AnyPartOf(count, member, members, random);
    parts.push_back(part);
  }
  return parts;
}

std::string MakeInput(const ReduceCase& c, int member) {
  std::mt19937_64 random(c.seed * 1000 + static_cast<uint64_t>(member));
  std::string input(c.count * SizeOf(c.dtype), '\0');
  constexpr char kBools[] = {0, 0, 1, 2, '\xff'};
  for (size_t i = 0; i < c.count; ++i) {
    if (c.dtype == DType::kBool) {
      input[i] = kBools[random() % std::size(kBools)];
    } else {
      WriteElement(input.data(), c.dtype, i, RandomValue(c, random));
    }
  }
  return input;
}

std::string ExpectedBits(const ReduceCase& c, const std::vector<std::string>& inputs) {
  std::string result(c.count * SizeOf(c.dtype), '\0');
  size_t begin = 0;
  for (size_t count : SegmentCounts(c)) {
    std::vector<const char*> segment;
    for (const std::string& input : inputs) segment.push_back(input.data() + begin);
    (Is8Bit(c) ? ReduceBlocks : ReduceElements)(c, segment, count, result.data() + begin);
    begin += count * SizeOf(c.dtype);
  }
  return result;
}

std::string ExpectedBits(const ReduceCase& c, const std::vector<std::string>& inputs, const HostMap& hosts) {
  if (hosts.hosts.empty()) return ExpectedBits(c, inputs);
  ReduceCase on_host = c;
  on_host.postscale = {};
  ReduceCase across = c;
  across.prescale = {};
  std::vector<std::string> results;
  for (const std::vector<RankId>& ranks : hosts.hosts) {
    std::vector<std::string> of_host;
    for (RankId rank : ranks) of_host.push_back(inputs[rank]);
    results.push_back(ExpectedBits(on_host, of_host));
  }
  return ExpectedBits(across, results);
}

std::string ReceivedBy(const ReduceCase& c, const std::string& whole, int member, int members) {
  const std::vector<size_t> counts = SegmentCounts(c);
  const std::vector<Part> parts = PartsOf(c, member, members);
  std::string received;
  size_t begin = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    received += whole.substr((begin + parts[i].begin) * SizeOf(c.dtype), parts[i].count * SizeOf(c.dtype));
    begin += counts[i];
  }
  return received;
}

std::string WithParts(const ReduceCase& c, const std::string& whole, const std::string& received, int member,
                      int members) {
  const std::vector<size_t> counts = SegmentCounts(c);
  const std::vector<Part> parts = PartsOf(c, member, members);
  std::string result = whole;
  size_t begin = 0;
  size_t taken = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const size_t bytes = parts[i].count * SizeOf(c.dtype);
    result.replace((begin + parts[i].begin) * SizeOf(c.dtype), bytes, received.substr(taken, bytes));
    taken += bytes;
    begin += counts[i];
  }
  return result;
}

std::vector<WireFormat> WireFormatsFor(DType dtype) {
  if (!IsFloatingPoint(dtype)) return {WireFormat::kNone};
  if (SizeOf(dtype) == 2) return {WireFormat::kNone, WireFormat::kFp8E4M3, WireFormat::kFp8E5M2};
  return {WireFormat::kNone, WireFormat::kFloat16, WireFormat::kBfloat16, WireFormat::kFp8E4M3, WireFormat::kFp8E5M2};
}

}  // namespace ronda::testing
