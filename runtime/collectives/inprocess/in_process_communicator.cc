// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/inprocess/in_process_communicator.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/reduce_arithmetic.h"
#include "runtime/control/inprocess/in_process_job.h"

namespace ronda {
namespace {

// The number of elements to reduce at once. All ranks' contributions to such a block stay in the L2 cache.
constexpr size_t kBlockElements = 2048;
constexpr size_t kBlockBytes = kBlockElements * 8;

// Reduces blocks of all members' inputs to all members' outputs.
//
// Inputs may be outputs, because a block is reduced to an accumulator before any output is written, and no other rank
// uses its elements.
class BlockReducer {
 public:
  // `posts` points to the members' ReduceArithmetic objects.
  explicit BlockReducer(absl::Span<const void* const> posts) : sources_(posts.size()) {
    for (const void* post : posts) members_.push_back(static_cast<const ReduceArithmetic*>(post));
    if (!members_[0]->ContributesInputItself()) scratch_.resize(posts.size() * kBlockBytes);
  }

  // Reduces granules [begin, begin + n), which have at most kBlockElements elements.
  void Reduce(size_t begin, size_t n) {
    const ReduceArithmetic& first = *members_[0];
    if (!first.ContributesInputItself()) {
      for (size_t i = 0; i < members_.size(); ++i) members_[i]->Pack(begin, n, Scratch(i));
    }
    size_t reduced_bytes = 0;
    first.buffer().ForEachRun(begin, n, [&](const ReduceArithmetic::Run& run) {
      FindSources(run);
      char* const reduced = accumulator_ + reduced_bytes;
      first.ReduceToElements(sources_, run.count, reduced);
      for (const ReduceArithmetic* member : members_) member->DeliverFrom(run, reduced);
      reduced_bytes += run.count * SizeOf(first.call().dtype);
    });
  }

 private:
  char* Scratch(size_t member) { return scratch_.data() + member * kBlockBytes; }

  void FindSources(const ReduceArithmetic::Run& run) {
    for (size_t i = 0; i < members_.size(); ++i) {
      const ReduceArithmetic& member = *members_[i];
      sources_[i] = member.ContributesInputItself() ? member.InputOf(run)
                                                    : Scratch(i) + run.offset * member.layout().granule_bytes;
    }
  }

  std::vector<const ReduceArithmetic*> members_;
  std::vector<char> scratch_;  // empty if inputs need no packing
  std::vector<const void*> sources_;
  alignas(64) char accumulator_[kBlockBytes];
};

// Returns an error if the members' counts differ, because the call would then read beyond the end of a buffer. The
// negotiation ensures that they are equal.
absl::Status CheckEqualCounts(absl::Span<const void* const> posts) {
  const absl::Span<const Segment> first = static_cast<const ReduceArithmetic*>(posts[0])->buffer().segments();
  for (size_t i = 1; i < posts.size(); ++i) {
    const absl::Span<const Segment> other = static_cast<const ReduceArithmetic*>(posts[i])->buffer().segments();
    const auto same_count = [](const Segment& a, const Segment& b) { return a.count == b.count; };
    if (std::equal(first.begin(), first.end(), other.begin(), other.end(), same_count)) continue;
    return absl::InternalError(absl::StrCat("members 0 and ", i, " reduce tensors of different sizes"));
  }
  return absl::OkStatus();
}

// Copies the piece for member `self` from each member's input.
void ReceivePieces(const AlltoallCall& call, absl::Span<const void* const> inputs, int self) {
  char* to = static_cast<char*>(call.output);
  for (size_t sender = 0; sender < inputs.size(); ++sender) {
    const absl::Span<const size_t> row = call.bytes.subspan(sender * inputs.size(), inputs.size());
    const size_t skipped = std::accumulate(row.begin(), row.begin() + self, size_t{0});
    if (row[self] > 0) std::memcpy(to, static_cast<const char*>(inputs[sender]) + skipped, row[self]);
    to += row[self];
  }
}

size_t Sum(absl::Span<const size_t> bytes) { return std::accumulate(bytes.begin(), bytes.end(), size_t{0}); }

}  // namespace

absl::Status InProcessCommunicator::Meet(const CallInfo& info, size_t bytes, const void* arguments,
                                         InProcessJob::Work work, LateCall* late_call) {
  const uint64_t meeting = calls_++;
  if (!Members(info, rank_, size()).IncludeSelf()) return job_->failure();
  return job_->Meet({.meeting = meeting,
                     .group = info.group,
                     .running = {.self = rank_,
                                 .op = info.op,
                                 .label = info.label,
                                 .limits = info.limits,
                                 .bytes_total = bytes,
                                 .late_call = late_call},
                     .arguments = arguments},
                    work);
}

absl::Status InProcessCommunicator::Vote(const CallInfo& info) {
  if (info.ballot == nullptr) return absl::OkStatus();
  LateCall late_call(info.ballot->when_late);
  return Meet(
      info, 0, info.ballot,
      [&](absl::Span<const void* const> ballots) {
        uint8_t words = 0;
        for (const void* ballot : ballots) words |= static_cast<const Ballot*>(ballot)->word();
        info.ballot->Decide(words);
        return absl::OkStatus();
      },
      &late_call);
}

absl::Status InProcessCommunicator::Reduce(const ReduceCall& call) {
  RONDA_RETURN_IF_ERROR(Vote(call.info));
  if (IsVetoed(call.info)) return absl::OkStatus();
  const ReduceArithmetic reduction(call, &reduction_memory_);
  const Members members(call.info, rank_, size());
  const size_t granules = reduction.granules();
  const size_t block = kBlockElements / reduction.layout().granule_elements;
  const size_t blocks = (granules + block - 1) / block;
  return Meet(call.info, reduction.wire_bytes(), &reduction, [&](absl::Span<const void* const> posts) -> absl::Status {
    RONDA_RETURN_IF_ERROR(CheckEqualCounts(posts));
    const size_t begin = blocks * members.self() / members.size();
    const size_t end = blocks * (members.self() + 1) / members.size();
    if (begin == end) return absl::OkStatus();  // other members reduce the few blocks that there are
    BlockReducer reducer(posts);
    for (size_t i = begin; i < end; ++i) {
      reducer.Reduce(i * block, std::min(block, granules - i * block));
    }
    return absl::OkStatus();
  });
}

absl::Status InProcessCommunicator::Broadcast(const BroadcastCall& call) {
  return Meet(call.info, call.bytes, call.data, [&](absl::Span<const void* const> data) {
    if (call.data != data[call.root] && call.bytes > 0) std::memcpy(call.data, data[call.root], call.bytes);
    return absl::OkStatus();
  });
}

absl::Status InProcessCommunicator::Allgather(const AllgatherCall& call) {
  const int self = Members(call.info, rank_, size()).self();
  return Meet(call.info, Sum(call.bytes_per_rank), call.input, [&](absl::Span<const void* const> inputs) {
    if (call.receiver.value_or(self) != self) return absl::OkStatus();
    char* to = static_cast<char*>(call.output);
    for (size_t member = 0; member < inputs.size(); ++member) {
      const size_t bytes = call.bytes_per_rank[member];
      if (bytes > 0) std::memcpy(to, inputs[member], bytes);
      to += bytes;
    }
    return absl::OkStatus();
  });
}

absl::Status InProcessCommunicator::Alltoall(const AlltoallCall& call) {
  const int self = Members(call.info, rank_, size()).self();
  return Meet(call.info, Sum(call.bytes), call.input, [&](absl::Span<const void* const> inputs) {
    ReceivePieces(call, inputs, self);
    return absl::OkStatus();
  });
}

absl::Status InProcessCommunicator::Barrier(const CallInfo& info) {
  if (info.ballot != nullptr) return Vote(info);
  return Meet(info, 0, nullptr, [](absl::Span<const void* const>) { return absl::OkStatus(); });
}

std::unique_ptr<InProcessWorld> InProcessWorld::Create(Options options) {
  RONDA_CHECK(options.size > 0);
  return std::unique_ptr<InProcessWorld>(new InProcessWorld(std::move(options)));
}

InProcessWorld::InProcessWorld(Options options) : job_(std::make_shared<InProcessJob>(std::move(options))) {}

Transport InProcessWorld::Connect(RankId rank) {
  RONDA_CHECK(0 <= rank && rank < size());
  return {.control = std::make_unique<InProcessControlPlane>(job_, rank),
          .communicator = std::make_unique<InProcessCommunicator>(job_, rank),
          .flights = job_->flights()};
}

}  // namespace ronda
