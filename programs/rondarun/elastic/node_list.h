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

// The list of the hosts of an elastic job whose nodes connect by themselves. Each node is a rondarun that connects to
// the leader's rondarun, and proves that it knows the job's secret. Then it looks after the members on its host, as an
// agent. The leader's own host is one of the hosts. A lost node is removed from the list; if it comes back, it is a new
// node.
//
// A caller that sends nothing, or invalid bytes, delays no other caller. A caller has 10 s to send its hello, and at
// most 64 callers can be waited for at a time. The list reads no more bytes than a hello may have.
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
    // Called with all hosts of the job when they have changed.
    std::function<void(const std::vector<JobMembership::Host>& hosts)> on_hosts;
    // Called when the job has had too few slots for the whole `timeout`.
    std::function<void(const std::string& what)> on_shortage;
    std::function<void(absl::string_view text)> say;  // to the user
    const Clock* clock = Clock::Real();
  };

  // `listener` is a socket that ListenAt has returned.
  NodeList(Options options, UniqueFd listener) : options_(std::move(options)), listener_(std::move(listener)) {}

  // Accepts nodes from now on.
  void Begin(Listener listener);

  void AddTo(PollSet* poll);

  // The owner must call OnTime at deadline(), and may call it earlier.
  void OnTime();
  absl::Time deadline() const;

  // Returns the socket of the node `host`; -1 if there is no such node. From now on the caller reads from the socket.
  // The list still owns the socket.
  int HandOver(const std::string& host);
  // Returns the address from which the node has come; nullopt if there is no such node.
  std::optional<std::string> AddressOf(const std::string& host) const;
  std::string own_address() const { return options_.endpoint.address; }
  // The caller that has taken the node's socket reports that the node is gone.
  void OnLost(const std::string& host);

  // The job has ended. Tells the nodes how the job has ended, and waits a moment until they have received the message.
  // From now on only this list may use the nodes' sockets.
  void Conclude(int exit_code, absl::string_view why);

  // Sends each node its number, and closes the connection as Conclude does. The node that came first gets number 1.
  // After this the list no longer listens for nodes.
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
  // Sends the verdict. Returns false if the caller is gone.
  static bool Answer(const Greeting& greeting, const NodeWelcome& welcome);
  void Refuse(const Greeting& greeting, NodeWelcome::Verdict verdict, absl::string_view why);
  void Admit(Greeting greeting, const NodeHello& hello);
  std::string UniqueName(const std::string& name) const;
  // Sends each node the message that `message` returns for the node's position. Waits until all nodes have closed their
  // connections, but only for a moment.
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
