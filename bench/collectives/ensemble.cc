#include "bench/collectives/ensemble.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>

#include "bench/binding.h"
#include "runtime/base/status_macros.h"

namespace ronda::bench {

Ensemble::Ensemble(std::unique_ptr<Contestant> contestant, int rank) : name_(contestant->name()) {
  members_.push_back({.contestant = std::move(contestant), .rank = rank});
}

Ensemble::Ensemble(std::string name, std::vector<std::unique_ptr<Contestant>> contestants) : name_(std::move(name)) {
  for (std::unique_ptr<Contestant>& contestant : contestants) {
    members_.push_back({.contestant = std::move(contestant), .rank = static_cast<int>(members_.size())});
  }
}

Contestant::Kind Ensemble::kind() const {
  return members_.empty() ? Contestant::Kind::kRonda : members_.front().contestant->kind();
}

std::string Ensemble::algorithm() const { return members_.empty() ? "" : members_.front().contestant->algorithm(); }

absl::StatusOr<bool> Ensemble::Prepare(const CollectiveCase& shape, const CaseBuffers& buffers) {
  shape_ = shape;
  bool is_able = true;
  for (Member& member : members_) {
    member.memory.clear();
    member.buffers = buffers;
    if (&member != &members_.front()) {
      member.memory.emplace_back(shape.bytes());
      if (buffers.input != buffers.output) member.memory.emplace_back(shape.bytes());
      member.buffers = {.input = member.memory.front().data(), .output = member.memory.back().data()};
    }
    RONDA_ASSIGN_OR_RETURN(const bool is_member_able, member.contestant->Prepare(shape, member.buffers));
    is_able = is_able && is_member_able;
  }
  return is_able;
}

void Ensemble::Clear() {
  const size_t element = SizeOf(shape_.dtype);
  for (Member& member : members_) {
    std::fill_n(static_cast<char*>(member.buffers.input), shape_.input_count() * element, char{0});
    std::fill_n(static_cast<char*>(member.buffers.output), shape_.output_count() * element, char{0});
  }
}

double Ensemble::Run(int times) {
  std::barrier all_are_ready(static_cast<std::ptrdiff_t>(members_.size()));
  std::atomic<double> slowest = 0;
  ForEach([&](Member& member) {
    all_are_ready.arrive_and_wait();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < times; ++i) member.contestant->Run();
    const std::chrono::duration<double> own = std::chrono::steady_clock::now() - start;
    double before = slowest;
    while (before < own.count() && !slowest.compare_exchange_weak(before, own.count())) {
    }
  });
  return slowest;
}

int64_t Ensemble::CountWrong() {
  std::atomic<int64_t> wrong = 0;
  ForEach([&](Member& member) {
    FillOutput(shape_, member.buffers.output);
    if (shape_.op != OpType::kBroadcast || member.rank == 0) FillInput(shape_, member.rank, member.buffers.input);
    wrong += bench::CountWrong(shape_, member.rank, member.contestant->Run());
  });
  return wrong;
}

void Ensemble::ForEach(absl::FunctionRef<void(Member& member)> body) {
  if (members_.size() == 1) return body(members_.front());
  std::vector<std::thread> threads;
  for (Member& member : members_) {
    threads.emplace_back([&member, body] {
      // A launcher that binds the process to a core takes it for one rank.
      Bind(Binding::kNone, member.rank);
      body(member);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace ronda::bench
