#ifndef RONDA_RUNTIME_NEGOTIATION_TENSOR_KEY_H_
#define RONDA_RUNTIME_NEGOTIATION_TENSOR_KEY_H_

#include <compare>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"
#include "runtime/base/types.h"

namespace ronda {

// A TensorKey that owns nothing, for lookups that should not copy the name.
struct TensorKeyView {
  ProcessSetId process_set = kGlobalProcessSet;
  absl::string_view name;

  friend bool operator==(const TensorKeyView& a, const TensorKeyView& b) {
    return a.process_set == b.process_set && a.name == b.name;
  }
  template <typename H>
  friend H AbslHashValue(H h, const TensorKeyView& key) {
    return H::combine(std::move(h), key.process_set, key.name);
  }
};

// What tells tensors in flight apart: the same name may be in flight in several process sets at once.
struct TensorKey {
  ProcessSetId process_set = kGlobalProcessSet;
  std::string name;

  TensorKey() = default;
  TensorKey(ProcessSetId set, std::string tensor) : process_set(set), name(std::move(tensor)) {}
  explicit TensorKey(TensorKeyView view) : process_set(view.process_set), name(view.name) {}

  operator TensorKeyView() const { return {process_set, name}; }  // NOLINT(google-explicit-constructor): lookups

  friend bool operator==(const TensorKey&, const TensorKey&) = default;
  friend auto operator<=>(const TensorKey&, const TensorKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const TensorKey& key) {
    return AbslHashValue(std::move(h), TensorKeyView(key));
  }
};

struct TensorKeyHash {
  using is_transparent = void;
  size_t operator()(const TensorKeyView& key) const { return absl::Hash<TensorKeyView>()(key); }
};

struct TensorKeyEqual {
  using is_transparent = void;
  bool operator()(const TensorKeyView& a, const TensorKeyView& b) const { return a == b; }
};

// Finds by TensorKeyView too.
template <typename V>
using TensorKeyMap = absl::flat_hash_map<TensorKey, V, TensorKeyHash, TensorKeyEqual>;

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_TENSOR_KEY_H_
