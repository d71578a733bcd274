#include "runtime/negotiation/pending_tensors.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"
#include "runtime/negotiation/response_cache.h"

namespace ronda {

void PendingTensor::SpellOut() {
  if (!cached) return;
  spelled = RequestOf(*cached, first_rank, *participants);
  first_dims = cached->first_dims;
  cached_as = 0;
  cached = nullptr;
}

bool PendingTensor::CachedResponseHolds(const std::vector<RankId>& joined) const {
  if (!cached) return false;
  const std::vector<int64_t>& rows = cached->first_dims;
  return rows.empty() || std::all_of(joined.begin(), joined.end(),
                                     [&](RankId rank) { return rows[*participants->PositionOf(rank)] == 0; });
}

std::shared_ptr<Response> PendingTensor::TakeResponse(const std::vector<RankId>& joined) {
  SpellOut();
  auto response = std::make_shared<Response>();
  response->request = std::move(spelled);
  TensorRequest& request = response->request;
  const FirstDimension meaning = TraitsOf(request.op).first_dimension;
  if (meaning == FirstDimension::kGathered || meaning == FirstDimension::kLocal) request.shape.front() = 0;
  if (meaning == FirstDimension::kGathered) {
    response->first_dims = std::move(first_dims);
    for (RankId rank : joined) response->first_dims[*participants->PositionOf(rank)] = 0;
  }
  return response;
}

PendingTensor* PendingTable::Find(TensorKeyView key) const {
  const auto it = tensors_.find(key);
  return it == tensors_.end() ? nullptr : it->get();
}

PendingTensor* PendingTable::FindById(CacheId id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : it->second;
}

PendingTensor* PendingTable::Start(const TensorRequest& request) {
  std::unique_ptr<PendingTensor> tensor = Fresh();
  tensor->spelled = request;
  return Insert(std::move(tensor));
}

PendingTensor* PendingTable::Start(CacheId id, std::shared_ptr<const Response> response) {
  std::unique_ptr<PendingTensor> tensor = Fresh();
  tensor->cached = std::move(response);
  tensor->cached_as = id;
  PendingTensor* inserted = Insert(std::move(tensor));
  by_id_.emplace(id, inserted);
  return inserted;
}

void PendingTable::SpellOut(PendingTensor* tensor) {
  by_id_.erase(tensor->cached_as);
  tensor->SpellOut();
}

std::unique_ptr<PendingTensor> PendingTable::Extract(PendingTensor* tensor) {
  if (tensor->cached_as != 0) by_id_.erase(tensor->cached_as);
  const auto it = tensors_.find(tensor->request().key());
  RONDA_CHECK(it != tensors_.end() && it->get() == tensor);
  return std::move(tensors_.extract(it).value());
}

void PendingTable::Recycle(std::unique_ptr<PendingTensor> tensor) {
  // Bounded by the number of tensors that were ever pending at once.
  spare_.push_back(std::move(tensor));
}

void PendingTable::Clear() {
  by_id_.clear();
  while (!tensors_.empty()) Recycle(std::move(tensors_.extract(tensors_.begin()).value()));
}

std::vector<PendingTensor*> PendingTable::Select(const std::function<bool(const PendingTensor&)>& wanted) const {
  std::vector<PendingTensor*> selected;
  for (const std::unique_ptr<PendingTensor>& tensor : tensors_) {
    if (wanted(*tensor)) selected.push_back(tensor.get());
  }
  std::sort(selected.begin(), selected.end(),
            [](const PendingTensor* a, const PendingTensor* b) { return a->sequence < b->sequence; });
  return selected;
}

std::unique_ptr<PendingTensor> PendingTable::Fresh() {
  if (spare_.empty()) return std::make_unique<PendingTensor>();
  std::unique_ptr<PendingTensor> tensor = std::move(spare_.back());
  spare_.pop_back();
  tensor->cached = nullptr;
  tensor->cached_as = 0;
  tensor->first_dims.clear();
  tensor->mismatch.clear();
  return tensor;
}

PendingTensor* PendingTable::Insert(std::unique_ptr<PendingTensor> tensor) {
  tensor->sequence = next_sequence_++;
  PendingTensor* raw = tensor.get();
  RONDA_CHECK(tensors_.insert(std::move(tensor)).second);
  return raw;
}

absl::Status HeldGroup::Verdict() const {
  const TensorRequest& first = tensors.front().tensor->request();
  for (const ConcludedTensor& member : tensors) {
    const TensorRequest& request = member.tensor->request();
    if (!member.verdict.ok()) {
      return absl::Status(member.verdict.code(),
                          absl::StrCat("no tensor of group '", first.group, "' is carried out, because of tensor '",
                                       request.name, "': ", member.verdict.message()));
    }
    if (request.group_size != first.group_size) {
      return absl::FailedPreconditionError(
          absl::StrCat("no tensor of group '", first.group, "' is carried out: tensor '", first.name, "' is one of ",
                       first.group_size, " tensors, and tensor '", request.name, "' is one of ", request.group_size));
    }
  }
  if (static_cast<int>(tensors.size()) == size) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("no tensor of group '", first.group, "' is carried out: it has ",
                                                    tensors.size(), " tensors, and not ", size, " as they say"));
}

void GroupTable::Hold(ConcludedTensor tensor, absl::Time now) {
  const TensorRequest& request = tensor.tensor->request();
  const auto [it, is_new] = groups_.try_emplace(TensorKey(GroupOf(request)));
  HeldGroup& group = it->second;
  if (is_new) {
    group.size = request.group_size;
    group.since = now;
    group.sequence = next_sequence_++;
  }
  group.tensors.push_back(std::move(tensor));
}

template <typename Predicate>
std::vector<HeldGroup> GroupTable::TakeIf(Predicate predicate) {
  std::vector<HeldGroup> taken;
  for (auto it = groups_.begin(); it != groups_.end();) {
    const auto current = it++;
    if (!predicate(*current)) continue;
    taken.push_back(std::move(current->second));
    groups_.erase(current);
  }
  std::sort(taken.begin(), taken.end(), [](const HeldGroup& a, const HeldGroup& b) { return a.sequence < b.sequence; });
  return taken;
}

std::vector<HeldGroup> GroupTable::TakeComplete() {
  return TakeIf([](const auto& entry) { return static_cast<int>(entry.second.tensors.size()) >= entry.second.size; });
}

std::vector<HeldGroup> GroupTable::Take(TensorKeyView group) {
  return TakeIf([&](const auto& entry) { return TensorKeyView(entry.first) == group; });
}

std::vector<HeldGroup> GroupTable::TakeAllOf(ProcessSetId set) {
  return TakeIf([&](const auto& entry) { return entry.first.process_set == set; });
}

void GroupTable::SpellOut(CacheId id) {
  for (auto& [key, group] : groups_) {
    for (ConcludedTensor& member : group.tensors) {
      if (member.tensor->cached_as == id) member.tensor->SpellOut();
    }
  }
}

const HeldGroup* GroupTable::FindByTensor(TensorKeyView tensor) const {
  for (const auto& [key, group] : groups_) {
    for (const ConcludedTensor& member : group.tensors) {
      if (member.tensor->request().key() == tensor) return &group;
    }
  }
  return nullptr;
}

}  // namespace ronda
