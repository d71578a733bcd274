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

// A rank's node of the tree, and its links to its neighbours over messages. It moves frames between the node and the
// links, whenever it is asked to.
//
// Each end of a link sends an open frame with the job's id, then pieces of the node's frames, and at last an end frame.
// The child sends its end frame first, when the child leaves or when its parent has announced its departure. The parent
// answers with its own end frame. So no message is lost because a connection closes with unread bytes.
//
// One piece is under way on a link at a time. Meanwhile new reports join the reports that wait.
//
// Thread-compatible. Any call may run out of memory. A frame may then be lost, and the rank must not go on.
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

  // Begins to receive, and sends the open frames. Call once, first.
  void Open();

  // Receives what has come, and notices what has been sent and which links have broken. Returns whether any of this has
  // happened. One call does a limited amount of work, and leaves the rest to the next call.
  bool Move();

  // Sends what the node has for its neighbours, as far as the links can take it.
  void Flush();

  // Begins to end the links as described above, because this rank leaves.
  void Close() { is_closing_ = true; }

  // Whether, after Close, every link has ended at both ends, or has been given up.
  bool HaveClosed() const;

  // Whether everything has been sent to the neighbours that can receive it.
  bool HaveSentAll() const;

  // Whether the library has bytes for a neighbour that it has not sent yet, and the last ListDescriptors did not list
  // that neighbour for output.
  bool HasUnlistedOutput() const;

  // Whether the library still uses any of this object's buffers.
  bool IsUnderWay() const;

  // Adds the descriptors to poll. When one is ready, Move has something to do.
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

  // Return whether anything has moved, or the link has broken.
  bool ReceiveFrom(Link& link);
  bool CompleteSends(Link& link);

  void FlushTo(Link& link);
  void Receive(Link& link, LinkFrame frame);
  void ReceiveOpen(Link& link, absl::string_view job_id);
  void Attach(Link& link);
  void ReceivePiece(Link& link, absl::string_view piece);
  void Send(Link& link, LinkFrame frame);
  // The next frame for the neighbour.
  std::optional<LinkFrame> NextFrame(Link& link);
  bool IsToEnd(const Link& link) const;
  // Give up the link, because of `why`. BreakSending first receives what the neighbour has sent before, because this
  // may say why the neighbour has ended.
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
