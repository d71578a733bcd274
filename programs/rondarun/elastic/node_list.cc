// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/elastic/node_list.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/net/loopback_users.h"

namespace ronda {
namespace {

constexpr absl::Duration kHelloTimeout = absl::Seconds(10);
constexpr size_t kMaxGreetings = 64;

// How long to wait before accepting the next caller if this process has no free descriptor.
constexpr absl::Duration kAcceptPause = absl::Seconds(1);

// At most this number of different texts about rejected callers are printed, so that they do not fill the user's
// screen.
constexpr size_t kMaxRefusalsSaid = 20;

// How long the nodes have to receive the message that the job has ended.
constexpr absl::Duration kLeaveTimeout = absl::Seconds(2);

std::string Count(int count, absl::string_view what) { return absl::StrCat(count, " ", what, count == 1 ? "" : "s"); }

}  // namespace

void NodeList::Begin(Listener listener) {
  listener_of_job_ = std::move(listener);
  Say(absl::StrCat("leads the job; nodes join it at ", ToString(options_.endpoint)));
  LookAtSlots();
}

void NodeList::AddTo(PollSet* poll) {
  if (now() >= accept_from_) poll->Add(listener_.get(), POLLIN, [this] { Accept(); });
  for (const auto& [id, greeting] : greetings_) {
    poll->Add(greeting.call.socket.get(), POLLIN, [this, id = id] { Read(id); });
  }
  for (const Node& node : nodes_) {
    // The caller of HandOver reads from the socket of this node, so the list does not.
    if (node.state == Node::State::kHandedOver) continue;
    poll->Add(node.call.socket.get(), POLLRDHUP, [this, name = node.host.name] {
      Say(absl::StrCat("node ", name, " has gone"));
      OnLost(name);
    });
  }
}

void NodeList::OnTime() {
  const absl::Time time = now();
  std::erase_if(greetings_, [&](const auto& one) { return one.second.deadline <= time; });
  if (!is_told_) Tell();
  if (time < shortage_deadline_) return;
  shortage_deadline_ = absl::InfiniteFuture();
  int slots = options_.own.slots;
  for (const Node& node : nodes_) slots += node.host.slots;
  listener_of_job_.on_shortage(absl::StrCat("too few nodes have come within ", absl::FormatDuration(options_.timeout),
                                            " (--elastic-timeout): ", Count(count(), "node"), " with ",
                                            Count(slots, "slot"), ", and the job needs ", options_.min_slots,
                                            " (--nnodes)"));
}

absl::Time NodeList::deadline() const {
  if (!is_told_) return absl::InfinitePast();
  absl::Time earliest = shortage_deadline_;
  if (now() < accept_from_) earliest = std::min(earliest, accept_from_);
  for (const auto& [id, greeting] : greetings_) earliest = std::min(earliest, greeting.deadline);
  return earliest;
}

int NodeList::HandOver(const std::string& host) {
  for (Node& node : nodes_) {
    if (node.host.name != host) continue;
    node.state = Node::State::kHandedOver;
    return node.call.socket.get();
  }
  return -1;
}

std::optional<std::string> NodeList::AddressOf(const std::string& host) const {
  for (const Node& node : nodes_) {
    if (node.host.name == host) return node.call.address;
  }
  return std::nullopt;
}

// The job learns later that the node is gone, because the ends of the node's members are reported after this call.
void NodeList::OnLost(const std::string& host) {
  const size_t erased = std::erase_if(nodes_, [&](const Node& node) { return node.host.name == host; });
  if (erased == 0) return;
  is_told_ = false;
  LookAtSlots();
}

// -- Callers --

void NodeList::Accept() {
  while (true) {
    absl::StatusOr<NodeCall> call = AcceptNode(listener_.get());
    if (call.ok()) {
      Greet(*std::move(call));
      continue;
    }
    if (absl::IsResourceExhausted(call.status())) accept_from_ = now() + kAcceptPause;
    return;
  }
}

void NodeList::Greet(NodeCall call) {
  auto callee = NodeCallee::Create(options_.secret);
  if (!callee.ok()) return;
  // A real node sends its hello almost at once. So the oldest caller without a hello is probably not a node, and is
  // dropped.
  if (greetings_.size() == kMaxGreetings) greetings_.erase(greetings_.begin());
  const std::string challenge = callee->challenge();
  if (send(call.socket.get(), challenge.data(), challenge.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(challenge.size())) {
    return;
  }
  greetings_.emplace(
      next_greeting_++,
      Greeting{.call = std::move(call), .callee = *std::move(callee), .deadline = now() + kHelloTimeout});
}

void NodeList::Read(int64_t id) {
  const auto found = greetings_.find(id);
  if (found == greetings_.end()) return;
  Greeting& greeting = found->second;
  size_t wanted = kNodeLengthBytes;
  if (greeting.received.size() >= kNodeLengthBytes) wanted += *NodeMessageLength(greeting.received);
  std::array<char, kNodeLengthBytes + kMaxNodeMessageBytes> buffer;
  const ssize_t count = recv(greeting.call.socket.get(), buffer.data(), wanted - greeting.received.size(), 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) {
    greetings_.erase(found);
    return;
  }
  greeting.received.append(buffer.data(), static_cast<size_t>(count));
  if (greeting.received.size() < kNodeLengthBytes) return;
  const std::optional<size_t> length = NodeMessageLength(greeting.received);
  if (!length || *length == 0) {
    SayOnce(absl::StrCat("a caller from ", greeting.call.address, " was refused: it is no rondarun"));
    greetings_.erase(found);
  } else if (greeting.received.size() == kNodeLengthBytes + *length) {
    Judge(id);
  }
}

void NodeList::Judge(int64_t id) {
  Greeting greeting = std::move(greetings_.extract(id).mapped());
  const auto hello = greeting.callee.Check(absl::string_view(greeting.received).substr(kNodeLengthBytes));
  using Verdict = NodeWelcome::Verdict;
  if (!hello.ok()) {
    const bool is_proved = !absl::IsPermissionDenied(hello.status());
    return Refuse(greeting, is_proved ? Verdict::kUnfit : Verdict::kNotProved, hello.status().message());
  }
  if (options_.secret.empty()) {
    const absl::Status user = CheckCaller(greeting.call.socket.get());
    if (!user.ok()) return Refuse(greeting, Verdict::kUnfit, user.message());
  }
  if (count() >= options_.max_nodes) {
    return Refuse(greeting, Verdict::kNoRoom,
                  absl::StrCat("the job has ", Count(count(), "node"), ", and takes no more (--nnodes)"));
  }
  Admit(std::move(greeting), *hello);
}

bool NodeList::Answer(const Greeting& greeting, const NodeWelcome& welcome) {
  const std::string text = greeting.callee.Answer(welcome);
  return send(greeting.call.socket.get(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

void NodeList::Refuse(const Greeting& greeting, NodeWelcome::Verdict verdict, absl::string_view why) {
  SayOnce(absl::StrCat("a node at ", greeting.call.address, " was refused: ", why));
  Answer(greeting, {.verdict = verdict, .text = std::string(why)});
}

void NodeList::Admit(Greeting greeting, const NodeHello& hello) {
  // A lost node that connects again is a new node, so the loss must first be reported to the job.
  if (!is_told_) Tell();
  const JobMembership::Host host = {.name = UniqueName(hello.name), .slots = hello.slots};
  if (!Answer(greeting, {.verdict = NodeWelcome::Verdict::kAccepted, .text = host.name})) return;
  Say(absl::StrCat("node ", host.name, " (", greeting.call.address, ") has come, with ", Count(host.slots, "slot")));
  nodes_.push_back({.host = host, .call = std::move(greeting.call)});
  LookAtSlots();
  Tell();
}

std::string NodeList::UniqueName(const std::string& name) const {
  const auto is_taken = [this](const std::string& wanted) {
    return wanted == options_.own.name || AddressOf(wanted).has_value();
  };
  std::string unique = name;
  for (int number = 2; is_taken(unique); ++number) unique = absl::StrCat(name, "-", number);
  return unique;
}

void NodeList::Tell() {
  is_told_ = true;
  std::vector<JobMembership::Host> hosts = {options_.own};
  for (const Node& node : nodes_) hosts.push_back(node.host);
  listener_of_job_.on_hosts(hosts);
}

void NodeList::LookAtSlots() {
  int slots = options_.own.slots;
  for (const Node& node : nodes_) slots += node.host.slots;
  if (slots >= options_.min_slots) {
    shortage_deadline_ = absl::InfiniteFuture();
  } else {
    shortage_deadline_ = std::min(shortage_deadline_, now() + options_.timeout);
  }
}

// Prints each text only once, because any process that connects can cause such texts.
void NodeList::SayOnce(const std::string& text) {
  if (said_.size() < kMaxRefusalsSaid && said_.insert(text).second) Say(text);
}

void NodeList::Conclude(int exit_code, absl::string_view why) {
  Dismiss([&](int) {
    return AgentMessage{.kind = AgentMessage::Kind::kEnd, .numbers = {exit_code}, .texts = {std::string(why)}};
  });
}

void NodeList::SendNumbers() {
  Dismiss([](int node) {
    return AgentMessage{.kind = AgentMessage::Kind::kNodeNumber, .numbers = {node + 1}, .texts = {}};
  });
}

// Before a socket is closed, all bytes that the node has sent are read. If bytes remained unread, the kernel might drop
// the bytes sent to the node.
void NodeList::Dismiss(const std::function<AgentMessage(int node)>& message) {
  // Close the listener first, because rank 0 may soon listen on the same port.
  listener_.Reset();
  greetings_.clear();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const int socket = nodes_[i].call.socket.get();
    const std::string bytes = Encode(message(static_cast<int>(i)));
    [[maybe_unused]] const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    shutdown(socket, SHUT_WR);
  }
  const absl::Time deadline = SteadyNow() + kLeaveTimeout;
  absl::Status waited;
  while (waited.ok() && !nodes_.empty() && SteadyNow() < deadline) {
    PollSet poll;
    for (const Node& node : nodes_) {
      poll.Add(node.call.socket.get(), POLLIN, [this, name = node.host.name, fd = node.call.socket.get()] {
        std::array<char, 65536> buffer;
        const ssize_t count = recv(fd, buffer.data(), buffer.size(), 0);
        const bool is_alive = count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
        if (!is_alive) std::erase_if(nodes_, [&](const Node& other) { return other.host.name == name; });
      });
    }
    waited = poll.Wait(deadline - SteadyNow());
  }
  nodes_.clear();
}

}  // namespace ronda
