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

// The node of one rank in the tree, and the links to its neighbours. Move and Flush carry frames between the node and
// the links.
//
// Each end of a link sends an open frame with the job's id, then pieces of the node's frames, and finally an end frame.
// The child sends its end frame first: when it leaves, or when its parent has announced its departure. The parent
// answers with its own end frame. Because of these end frames, a connection is closed only after all of its bytes have
// been read, so no message is lost.
//
// Each link sends only one piece at a time. Reports that arrive meanwhile join the waiting reports.
//
// Thread-compatible. Any call may run out of memory. After that, the rank must not go on, because a frame may have been
// lost.
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

  // Starts to receive, and sends the open frames. Must be called once, before all other functions.
  void Open();

  // Receives the frames that have arrived, completes finished sends, and notices broken links. Returns whether it did
  // any of this. One call does a limited amount of work, and leaves the rest to the next call.
  bool Move();

  // Sends the node's frames to its neighbours, except on links that are still busy with an earlier frame.
  void Flush();

  // Begins to end the links as described above, because this rank leaves the job.
  void Close() { is_closing_ = true; }

  // Returns whether every link has ended at both ends, or has been given up. REQUIRES: Close() has been called.
  bool HaveClosed() const;

  // Returns whether all frames have been sent, except to neighbours that can no longer receive.
  bool HaveSentAll() const;

  // Returns whether the library has unsent bytes for a neighbour whose descriptor was last listed without POLLOUT.
  bool HasUnlistedOutput() const;

  // Returns whether the library still uses any of the buffers of this object.
  bool IsUnderWay() const;

  // Appends the descriptors that the caller must poll. When one of them is ready, the caller must call Move.
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
  // Both functions give up the link, for the reason `why`. BreakSending first receives the neighbour's last frames,
  // because they may say why the neighbour has ended.
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
