// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_RONDARUN_ELASTIC_NODE_LIST_H_
#define RONDA_PROGRAMS_RONDARUN_ELASTIC_NODE_LIST_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "programs/rondarun/elastic/node_connection.h"
#include "programs/rondarun/elastic/node_handshake.h"
#include "programs/rondarun/membership/membership.h"
#include "programs/rondarun/supervise/agent.h"
#include "programs/rondarun/supervise/poll_set.h"
#include "runtime/base/clock.h"
#include "runtime/base/unique_fd.h"
#include "runtime/net/endpoint.h"

namespace ronda {

// The hosts of an elastic job whose nodes connect by themselves. Each node is a rondarun that connects to the leader's
// rondarun, and proves that it knows the job's secret. Then the node supervises the members on its host, as an agent
// does. The leader's own host is also in the list. A lost node is removed; if it connects again, it counts as a new
// node.
//
// A caller that sends nothing, or invalid bytes, does not delay other callers. A caller has 10 s to send its hello, and
// at most 64 callers are kept waiting at a time. No more bytes are read than a hello can have.
//
// Thread-compatible. The list must outlive the ElasticJob that uses it.
class NodeList {
 public:
  struct Options {
    std::string secret;                           // empty: any process that reaches the listener may join
    JobMembership::Host own;                      // the leader's host
    int max_nodes = 1;                            // with the leader's
    int min_slots = 1;                            // that the job needs
    Endpoint endpoint = {};                       // of the listener
    absl::Duration timeout = absl::Seconds(600);  // for min_slots to come
  };

  struct Listener {
    // Called with all hosts of the job whenever they have changed.
    std::function<void(const std::vector<JobMembership::Host>& hosts)> on_hosts;
    // Called if the job has had too few slots for the whole `timeout`.
    std::function<void(const std::string& what)> on_shortage;
    std::function<void(absl::string_view text)> say;  // to the user
    const Clock* clock = Clock::Real();
  };

  // `listener` is a socket from ListenAt.
  NodeList(Options options, UniqueFd listener) : options_(std::move(options)), listener_(std::move(listener)) {}

  // From now on, the list accepts nodes.
  void Begin(Listener listener);

  void AddTo(PollSet* poll);

  // Must be called at deadline(), and may be called earlier.
  void OnTime();
  absl::Time deadline() const;

  // Returns the socket of the node `host`, or -1 if there is no such node. From now on, the caller reads from the
  // socket, which the list still owns.
  int HandOver(const std::string& host);
  // Returns the address from which the node `host` has connected, or nullopt if there is no such node.
  std::optional<std::string> AddressOf(const std::string& host) const;
  std::string own_address() const { return options_.endpoint.address; }
  // Called when the caller of HandOver() finds that the node is gone.
  void OnLost(const std::string& host);

  // Called when the job has ended. Tells the nodes how the job has ended, and waits briefly for them to receive the
  // message. From this call on, only the list may use the sockets of the nodes.
  void Conclude(int exit_code, absl::string_view why);

  // Sends each node its number, and then closes the connections as Conclude does. The node that connected first gets
  // number 1. Afterwards, the list no longer listens for nodes.
  void SendNumbers();

  int count() const { return 1 + static_cast<int>(nodes_.size()); }

 private:
  struct Greeting {
    NodeCall call;
    NodeCallee callee;
    absl::Time deadline;
    std::string received = {};
  };
  struct Node {
    JobMembership::Host host;
    NodeCall call;
    enum class State { kIdle, kHandedOver } state = State::kIdle;
  };

  void Accept();
  void Greet(NodeCall call);
  void Read(int64_t id);
  void Judge(int64_t id);
  // Sends the leader's verdict to the caller. Returns false if the caller is gone.
  static bool Answer(const Greeting& greeting, const NodeWelcome& welcome);
  void Refuse(const Greeting& greeting, NodeWelcome::Verdict verdict, absl::string_view why);
  void Admit(Greeting greeting, const NodeHello& hello);
  std::string UniqueName(const std::string& name) const;
  // Sends each node the message that `message` returns for its index. Then waits until all nodes have closed their
  // connections, but only briefly.
  void Dismiss(const std::function<AgentMessage(int node)>& message);
  void Tell();
  void LookAtSlots();
  void Say(const std::string& text) { listener_of_job_.say(text); }
  void SayOnce(const std::string& text);
  absl::Time now() const { return listener_of_job_.clock->Now(); }

  const Options options_;
  UniqueFd listener_;
  Listener listener_of_job_;
  std::map<int64_t, Greeting> greetings_;  // by age
  int64_t next_greeting_ = 0;
  std::vector<Node> nodes_;  // in the order in which they came
  bool is_told_ = true;      // the job knows these hosts
  std::set<std::string> said_;
  absl::Time accept_from_ = absl::InfinitePast();          // no caller is accepted before this time
  absl::Time shortage_deadline_ = absl::InfiniteFuture();  // by which enough slots must be there
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_ELASTIC_NODE_LIST_H_
