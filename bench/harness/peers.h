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

// All peers, in the order of their columns.
const std::vector<PeerInfo>& KnownPeers();

// "mpi" is another name of "openmpi". nullptr if there is no such peer.
const PeerInfo* FindPeer(const std::string& name);

// Returns the path of a peer's plugin or program: beside this program as Bazel builds it (peers/), or below the prefix
// of `make install` (lib/ronda/). `peer` is a name of --peer. `package` is the Debian package that is needed to build
// the file.
// Errors: NOT_FOUND that says how to build it.
absl::StatusOr<std::string> FindPeerFile(const std::string& peer, const std::string& name, const std::string& package);

// A collective operation of a peer, ready to run repeatedly. Thread-compatible.
class PeerCall {
 public:
  PeerCall(const ronda_bench_peer* table, ronda_bench_prepared* prepared) : table_(table), prepared_(prepared) {}
  ~PeerCall() { table_->release(prepared_); }
  PeerCall(const PeerCall&) = delete;
  PeerCall& operator=(const PeerCall&) = delete;

  // Ends the process if the peer reports an error.
  void Run();

 private:
  const ronda_bench_peer* const table_;
  ronda_bench_prepared* const prepared_;
};

// A peer that all ranks have loaded, and whose job they have joined. Every rank makes the same calls.
// Thread-compatible. It must outlive its calls, and all ranks must destroy it.
class Peer {
 public:
  // Loads the peer's plugin and joins its job. Errors: NOT_FOUND that names the missing file, and the packages to
  // install or how to build it.
  static absl::StatusOr<std::unique_ptr<Peer>> Load(const PeerInfo& info, ProcessGroup* group);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  const PeerInfo& info() const { return info_; }
  std::string description() const { return table_->description(); }

  // Returns the names of the algorithms that support `call`; empty if the peer does not.
  std::vector<std::string> Algorithms(const ronda_bench_call& call) const;

  // Errors: INTERNAL with the peer's own text.
  absl::StatusOr<std::unique_ptr<PeerCall>> Prepare(const ronda_bench_call& call, int algorithm = 0);

  // Returns the fastest algorithm for `call`, found by a few trials on all ranks, which overwrite the buffers.
  absl::StatusOr<int> FastestAlgorithm(const ronda_bench_call& call, ProcessGroup* group);

 private:
  Peer(const PeerInfo& info, const ronda_bench_peer* table, std::unique_ptr<TemporaryFolder> folder)
      : info_(info), table_(table), folder_(std::move(folder)) {}

  const PeerInfo& info_;
  const ronda_bench_peer* const table_;
  const std::unique_ptr<TemporaryFolder> folder_;  // which the ranks share; nullptr: another rank owns it
};

// OK if the plugin can be loaded. Does not join a job. Errors: as Load.
absl::Status CheckInstalled(const PeerInfo& info);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_HARNESS_PEERS_H_
