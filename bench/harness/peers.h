// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_BENCH_HARNESS_PEERS_H_
#define RONDA_BENCH_HARNESS_PEERS_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/harness/launch.h"
#include "bench/harness/process_group.h"
#include "bench/harness/temporary_folder.h"
#include "bench/peers/peer.h"

namespace ronda::bench {

// A collective library that Ronda is compared with.
struct PeerInfo {
  std::string name;                  // as in --peer
  std::string title;                 // "Open MPI"
  std::string library;               // the plugin's file
  std::string packages;              // Debian's, with the libraries that the plugin needs
  std::string build_package;         // Debian's, with the headers that it is built with
  std::optional<Launcher> launcher;  // the only one that can start its ranks; nullopt: any launcher can
};

// Returns all peers in the order of their table columns.
const std::vector<PeerInfo>& KnownPeers();

// Returns the peer with this name, or nullptr if there is none. "mpi" is an alias for "openmpi".
const PeerInfo* FindPeer(const std::string& name);

// Returns the path of a peer's plugin or program. Bazel builds it in peers/, next to this program; `make install`
// copies it to lib/ronda/ under the prefix. `peer` is the peer's name, as in --peer. `package` is the Debian package
// that is needed to build the file. Errors: NOT_FOUND, with a text that says how to build the file.
absl::StatusOr<std::string> FindPeerFile(const std::string& peer, const std::string& name, const std::string& package);

// A collective operation of a peer, prepared for repeated runs. Thread-compatible.
class PeerCall {
 public:
  PeerCall(const ronda_bench_peer* table, ronda_bench_prepared* prepared) : table_(table), prepared_(prepared) {}
  ~PeerCall() { table_->release(prepared_); }
  PeerCall(const PeerCall&) = delete;
  PeerCall& operator=(const PeerCall&) = delete;

  // Exits the process if the peer reports an error.
  void Run();

 private:
  const ronda_bench_peer* const table_;
  ronda_bench_prepared* const prepared_;
};

// A peer library that all ranks have loaded, and in whose job they take part. Every rank must make the same calls.
// Thread-compatible. A Peer must outlive its calls, and every rank must destroy its Peer.
class Peer {
 public:
  // Loads the peer's plugin and joins its job. Errors: NOT_FOUND, with a text that names the missing file, and says
  // which packages to install or how to build the file.
  static absl::StatusOr<std::unique_ptr<Peer>> Load(const PeerInfo& info, ProcessGroup* group);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  const PeerInfo& info() const { return info_; }
  std::string description() const { return table_->description(); }

  // Returns the names of the algorithms that support `call`, or an empty list if the peer does not support `call`.
  std::vector<std::string> Algorithms(const ronda_bench_call& call) const;

  // Prepares `call`. Errors: INTERNAL, with the peer's error text.
  absl::StatusOr<std::unique_ptr<PeerCall>> Prepare(const ronda_bench_call& call, int algorithm = 0);

  // Returns the fastest algorithm for `call`, according to a few trials on all ranks, which overwrite the buffers.
  absl::StatusOr<int> FastestAlgorithm(const ronda_bench_call& call, ProcessGroup* group);

 private:
  Peer(const PeerInfo& info, const ronda_bench_peer* table, std::unique_ptr<TemporaryFolder> folder)
      : info_(info), table_(table), folder_(std::move(folder)) {}

  const PeerInfo& info_;
  const ronda_bench_peer* const table_;
  const std::unique_ptr<TemporaryFolder> folder_;  // which the ranks share; nullptr: another rank owns it
};

// Checks that the peer's plugin can be loaded, without joining a job. Errors: those of Load().
absl::Status CheckInstalled(const PeerInfo& info);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_HARNESS_PEERS_H_
