#ifndef RONDA_RUNTIME_LAUNCH_ELASTIC_NODE_LIST_H_
#define RONDA_RUNTIME_LAUNCH_ELASTIC_NODE_LIST_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/base/unique_fd.h"
#include "runtime/elastic/membership.h"
#include "runtime/launch/elastic/node_connection.h"
#include "runtime/launch/elastic/node_handshake.h"
#include "runtime/launch/supervise/agent.h"
#include "runtime/launch/supervise/job_part.h"
#include "runtime/launch/supervise/poll_set.h"
#include "runtime/net/endpoint.h"

namespace ronda {

// The hosts of an elastic job whose nodes come by themselves: each is a rondarun that connects to the leader's, proves
// that it knows the job's secret, and looks after the members on its host from then on, as an agent. The leader's own
// host is one of them. A node that is gone is listed no more; one that comes back is a new one.
//
// A caller that says nothing, or nonsense, holds up nobody: it has 10 s to introduce itself, 64 may do so at a time,
// and nothing is read of one beyond the length that its hello may have.
//
// Thread-compatible. It outlives the ElasticJob that attends to it.
class NodeList {
 public:
  struct Options {
    std::string secret;                           // empty: anybody who reaches the listener may join
    JobMembership::Host own;                      // the leader's host
    int max_nodes = 1;                            // with the leader's
    int min_slots = 1;                            // that the job needs
    Endpoint endpoint = {};                       // of the listener
    absl::Duration timeout = absl::Seconds(600);  // for so many slots to come
  };

  struct Listener {
    // The hosts of the job are these from now on.
    std::function<void(const std::vector<JobMembership::Host>& hosts)> on_hosts;
    // There have been too few slots for the timeout.
    std::function<void(const std::string& what)> on_shortage;
    JobListener* say = nullptr;
    const Clock* clock = Clock::Real();
  };

  // `listener` is a socket of ListenAt.
  NodeList(Options options, UniqueFd listener) : options_(std::move(options)), listener_(std::move(listener)) {}

  // Nodes may come from now on.
  void Begin(Listener listener);

  void AddTo(PollSet* poll);

  // To be called when `deadline` has come; too early does no harm.
  void OnTime();
  absl::Time deadline() const;

  // The socket of a node, which somebody else reads from now on; -1 if there is no such node. It stays this one's.
  int Take(const std::string& host);
  // The address from which the node has come; nullopt if there is no such node.
  std::optional<std::string> AddressOf(const std::string& host) const;
  std::string own_address() const { return options_.endpoint.address; }
  // Whoever has taken its socket says that the node is gone.
  void OnLost(const std::string& host);

  // The job has ended: tells the nodes how, and waits for a moment until they have heard it. Nobody else may use their
  // sockets any more.
  void Conclude(int exit_code, absl::string_view why);

  // Gives each node its number, from 1 on in the order of their coming, and dismisses it as Conclude does. Nobody
  // listens for nodes from then on.
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
    enum class State { kIdle, kTaken } state = State::kIdle;
  };

  void Accept();
  void Greet(NodeCall call);
  void Read(int64_t id);
  void Judge(int64_t id);
  // Sends the verdict. False if the caller is gone.
  static bool Answer(const Greeting& greeting, const NodeWelcome& welcome);
  void Refuse(const Greeting& greeting, NodeWelcome::Verdict verdict, absl::string_view why);
  void Admit(Greeting greeting, const NodeHello& hello);
  std::string UniqueName(const std::string& name) const;
  // Sends each node a message, by its position, and waits until all have closed their connections, for a moment at
  // most.
  void Dismiss(const std::function<AgentMessage(int node)>& message);
  void Tell();
  void LookAtSlots();
  void Say(const std::string& text) { listener_of_job_.say->Say(text); }
  void SayOnce(const std::string& text);
  absl::Time now() const { return listener_of_job_.clock->Now(); }

  const Options options_;
  UniqueFd listener_;
  Listener listener_of_job_;
  std::map<int64_t, Greeting> greetings_;  // by age
  int64_t next_greeting_ = 0;
  std::vector<Node> nodes_;  // in the order of their coming
  bool is_told_ = true;      // the hosts are those that the job has been told
  std::set<std::string> said_;
  absl::Time accept_from_ = absl::InfinitePast();          // no caller is taken before
  absl::Time shortage_deadline_ = absl::InfiniteFuture();  // for enough slots to be there
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_ELASTIC_NODE_LIST_H_
