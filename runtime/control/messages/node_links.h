// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_CONTROL_MESSAGES_NODE_LINKS_H_
#define RONDA_RUNTIME_CONTROL_MESSAGES_NODE_LINKS_H_

#include <poll.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/base/types.h"
#include "runtime/control/messages/frame_link.h"
#include "runtime/control/tree/control_node.h"
#include "runtime/control/tree/frame_stream.h"
#include "runtime/point_to_point/point_to_point.h"

namespace ronda {

// The node of one rank in the tree, and the node's links to its neighbours, which carry messages. Move and Flush carry
// frames between the node and the links.
//
// Each end of a link sends an open frame with the job's id, then pieces of the node's frames, and at last an end frame.
// The child is the first to send its end frame: when it leaves, or when its parent has announced the parent's own
// departure. The parent answers with its own end frame. Because of these end frames, no connection is closed while it
// contains unread bytes. So no message is lost.
//
// On each link, only one piece at a time is being sent. New reports that come while a piece is being sent join the
// reports that wait.
//
// Thread-compatible. Any call may run out of memory. When a call has run out of memory, the rank must not go on,
// because a frame may have been lost.
class NodeLinks {
 public:
  struct Options {
    ControlNode::Options node;
    std::string job_id;          // the same at both ends of a link
    std::vector<RankId> absent;  // neighbours to which there is no connection
  };

  NodeLinks(Options options, std::unique_ptr<PointToPoint> messages);

  ControlNode& node() { return node_; }
  const PointToPoint& messages() const { return *messages_; }

  // Begins to receive, and sends the open frames. The caller must call Open once, before all other functions.
  void Open();

  // Receives the frames that have come, completes the sends that have ended, and notices broken links. Returns whether
  // it has done any of this. One call does a limited amount of work, and leaves the rest of the work to the next call.
  bool Move();

  // Sends the frames of the node to its neighbours. A link that is still busy with an earlier frame is left out.
  void Flush();

  // Begins to end the links as described above, because this rank leaves the job.
  void Close() { is_closing_ = true; }

  // Returns whether every link has ended at both ends, or has been given up, since Close was called.
  bool HaveClosed() const;

  // Returns whether all frames have been sent, except to neighbours that can receive no more.
  bool HaveSentAll() const;

  // Returns whether the library has unsent bytes for a neighbour whose descriptor ListDescriptors last listed without
  // output.
  bool HasUnlistedOutput() const;

  // Returns whether the library still uses any of the buffers of this object.
  bool IsUnderWay() const;

  // Adds the descriptors that the caller must poll. When one of the descriptors is ready, the caller must call Move.
  void ListDescriptors(std::vector<pollfd>* descriptors);

 private:
  struct Link {
    Link(PointToPoint& messages, RankId peer) : frames(messages, peer) {}

    bool HasEnded() const { return is_broken || (has_end_gone && has_end_come); }

    FrameLink frames;
    FrameAssembler assembler{kMaxControlFrame};
    bool is_open = false;       // the neighbour has opened it
    bool is_attached = false;   // the node may have frames for the neighbour
    bool is_ending = false;     // this rank has sent its end frame, after which it sends nothing
    bool has_end_gone = false;  // the end frame has gone out, and the neighbour will receive it
    bool has_end_come = false;
    bool is_broken = false;  // nothing moves any more
    bool is_listed_for_output = false;
  };

  // These functions return whether a frame has moved or the link has broken.
  bool ReceiveFrom(Link& link);
  bool CompleteSends(Link& link);

  void FlushTo(Link& link);
  void Receive(Link& link, LinkFrame frame);
  void ReceiveOpen(Link& link, absl::string_view job_id);
  void Attach(Link& link);
  void ReceivePiece(Link& link, absl::string_view piece);
  void Send(Link& link, LinkFrame frame);
  // Returns the next frame to send on `link`; nullopt if no frame waits.
  std::optional<LinkFrame> NextFrame(Link& link);
  bool IsToEnd(const Link& link) const;
  // These functions give up the link, with the reason `why`. BreakSending first receives the last frames of the
  // neighbour, because they may say why the neighbour has ended.
  void Break(Link& link, const absl::Status& why);
  void BreakSending(Link& link, const absl::Status& why);

  const Options options_;
  const std::unique_ptr<PointToPoint> messages_;
  ControlNode node_;
  std::deque<Link> links_;  // constant once constructed, except for their states
  bool is_closing_ = false;
  bool has_broken_ = false;  // a link has broken since Flush last looked at the first link
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_MESSAGES_NODE_LINKS_H_
