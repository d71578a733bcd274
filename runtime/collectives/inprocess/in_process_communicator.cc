#include "runtime/collectives/inprocess/in_process_communicator.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/reduce.h"
#include "runtime/collectives/contribution.h"
#include "runtime/collectives/logical_buffer.h"

namespace ronda {
namespace {

// Elements reduced at a time. All ranks' contributions of a block stay in the second-level cache.
constexpr size_t kBlockElements = 2048;
constexpr size_t kMaxElementBytes = 8;
constexpr size_t kBlockBytes = kBlockElements * kMaxElementBytes;

struct PostedReduce {
  const ReduceCall& call;
  LogicalBuffer buffer;
};

// Reduces blocks of elements from all ranks' inputs into all ranks' outputs.
//
// A block is reduced into an accumulator before any output is written, and no other rank touches its elements: so
// inputs may be the outputs.
class BlockReducer {
 public:
  explicit BlockReducer(absl::Span<const void* const> posts)
      : scratch_(posts.size() * kBlockBytes), sources_(posts.size()) {
    for (const void* post : posts) ranks_.push_back(static_cast<const PostedReduce*>(post));
  }

  // Elements [begin, begin + n), n <= kBlockElements.
  void Reduce(size_t begin, size_t n) {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) sources_[rank] = Contribution(rank, begin, n);
    const ReduceCall& call = ranks_[0]->call;
    kernels::Reduce({.sources = sources_,
                     .dtype = WireDType(call),
                     .op = call.op,
                     .scale = call.postscale,
                     .dst = accumulator_,
                     .dst_dtype = call.dtype,
                     .count = n});
    const size_t element_bytes = SizeOf(call.dtype);
    for (const PostedReduce* rank : ranks_) {
      rank->buffer.ForEachRun(begin, n, [&](const LogicalBuffer::Run& run) {
        std::memcpy(run.output, accumulator_ + run.offset * element_bytes, run.count * element_bytes);
      });
    }
  }

 private:
  // Where the contribution of `rank` can be read: in its input, if that is in one piece and travels as it is.
  const void* Contribution(size_t rank, size_t begin, size_t n) {
    const PostedReduce& post = *ranks_[rank];
    if (ContributesInputItself(post.call)) {
      const void* direct = nullptr;
      post.buffer.ForEachRun(begin, n, [&](const LogicalBuffer::Run& run) {
        if (run.count == n) direct = run.input;
      });
      if (direct != nullptr) return direct;
    }
    char* const packed = scratch_.data() + rank * kBlockBytes;
    Pack(post.call, post.buffer, begin, n, packed);
    return packed;
  }

  std::vector<const PostedReduce*> ranks_;
  std::vector<char> scratch_;
  std::vector<const void*> sources_;
  alignas(64) char accumulator_[kBlockBytes];
};

// Negotiated calls agree; ones that do not would read beyond a buffer's end.
absl::Status CheckEqualCounts(absl::Span<const void* const> posts) {
  const size_t count = static_cast<const PostedReduce*>(posts[0])->buffer.count();
  for (size_t rank = 1; rank < posts.size(); ++rank) {
    const size_t other = static_cast<const PostedReduce*>(posts[rank])->buffer.count();
    if (other == count) continue;
    return absl::InternalError(
        absl::StrCat("allreduce of ", count, " elements on rank 0 and ", other, " on rank ", rank));
  }
  return absl::OkStatus();
}

}  // namespace

Capabilities InProcessCommunicator::capabilities() const {
  return {.name = "inprocess", .max_ranks_per_process = std::numeric_limits<int>::max()};
}

absl::Status InProcessCommunicator::Reduce(const ReduceCall& call) {
  const PostedReduce post{.call = call, .buffer = LogicalBuffer(call.segments, call.dtype)};
  const size_t blocks = (post.buffer.count() + kBlockElements - 1) / kBlockElements;
  return job_->Meet({.rank = rank_, .op = OpType::kAllreduce, .label = call.info.label, .arguments = &post},
                    [&](absl::Span<const void* const> posts) -> absl::Status {
                      if (absl::Status status = CheckEqualCounts(posts); !status.ok()) return status;
                      BlockReducer reducer(posts);
                      const size_t end = blocks * (rank_ + 1) / size();
                      for (size_t block = blocks * rank_ / size(); block < end; ++block) {
                        const size_t begin = block * kBlockElements;
                        reducer.Reduce(begin, std::min(kBlockElements, post.buffer.count() - begin));
                      }
                      return absl::OkStatus();
                    });
}

absl::Status InProcessCommunicator::Broadcast(const BroadcastCall& call) {
  return job_->Meet({.rank = rank_, .op = OpType::kBroadcast, .label = call.info.label, .arguments = call.data},
                    [&](absl::Span<const void* const> data) {
                      if (rank_ != call.root && call.bytes > 0) std::memcpy(call.data, data[call.root], call.bytes);
                      return absl::OkStatus();
                    });
}

absl::Status InProcessCommunicator::Allgather(const AllgatherCall& call) {
  return job_->Meet({.rank = rank_, .op = OpType::kAllgather, .label = call.info.label, .arguments = call.input},
                    [&](absl::Span<const void* const> inputs) {
                      char* to = static_cast<char*>(call.output);
                      for (int rank = 0; rank < size(); ++rank) {
                        const size_t bytes = call.bytes_per_rank[rank];
                        if (bytes > 0) std::memcpy(to, inputs[rank], bytes);
                        to += bytes;
                      }
                      return absl::OkStatus();
                    });
}

absl::Status InProcessCommunicator::Alltoall(const AlltoallCall& call) {
  return job_->Meet({.rank = rank_, .op = OpType::kAlltoall, .label = call.info.label, .arguments = call.input},
                    [&](absl::Span<const void* const> inputs) {
                      char* to = static_cast<char*>(call.output);
                      for (size_t sender = 0; sender < inputs.size(); ++sender) {
                        const absl::Span<const size_t> row = call.bytes.subspan(sender * inputs.size(), inputs.size());
                        const size_t skipped = std::accumulate(row.begin(), row.begin() + rank_, size_t{0});
                        if (row[rank_] > 0)
                          std::memcpy(to, static_cast<const char*>(inputs[sender]) + skipped, row[rank_]);
                        to += row[rank_];
                      }
                      return absl::OkStatus();
                    });
}

absl::Status InProcessCommunicator::Barrier(const CallInfo& info) {
  return job_->Meet({.rank = rank_, .op = OpType::kBarrier, .label = info.label, .arguments = nullptr},
                    [](absl::Span<const void* const>) { return absl::OkStatus(); });
}

}  // namespace ronda
